module wherecast/peers/quamina

go 1.22

require quamina.net/go/quamina v1.4.0

// quamina.net is not served by every module proxy; its sources are those of GitHub.
replace quamina.net/go/quamina => github.com/timbray/quamina v1.4.0
