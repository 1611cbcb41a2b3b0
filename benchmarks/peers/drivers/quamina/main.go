// quamina: one instance with all patterns, events as JSON. Loads patterns, checks and times matching:
//
//	quamina FOLDER BUDGET_S LOAD_S FILTERS
//
// Prints a line of JSON, as the drivers in Java do.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"quamina.net/go/quamina"
)

func main() {
	folder, budget, limit := os.Args[1], number(os.Args[2]), number(os.Args[3])
	filters, events := lines(filepath.Join(folder, "filters")), lines(filepath.Join(folder, "events"))
	patterns := make([][]json.RawMessage, len(filters))
	for i, line := range filters {
		must(json.Unmarshal(line, &patterns[i]))
	}

	start := time.Now()
	matcher, err := quamina.New()
	must(err)
	for loaded, pattern := range patterns {
		id, err := strconv.Atoi(string(pattern[0]))
		must(err)
		must(matcher.AddPattern(id, string(pattern[1])))
		if loaded&255 == 255 && time.Since(start).Seconds() > limit {
			fmt.Printf("{\"stopped\": \"loading was stopped after %.0f s\"}\n", limit)
			return
		}
	}
	load := time.Since(start).Seconds()

	n := min(5, len(events))
	taken := pass(matcher, events[:n])
	for taken < budget/8 && n < len(events) {
		n = min(len(events), n*4)
		taken = pass(matcher, events[:n])
	}
	passes := make([]float64, max(1, min(9, int(budget/taken))))
	for i := range passes {
		passes[i] = pass(matcher, events[:n])
	}
	slices.Sort(passes)

	checked := n
	if taken/float64(n)*float64(len(events)) < 10 {
		checked = len(events)
	}
	tally := make([]int, int(number(os.Args[4])))
	for _, event := range events[:checked] {
		once := map[int]bool{}
		for _, id := range match(matcher, event) {
			once[id.(int)] = true
		}
		for id := range once {
			tally[id]++
		}
	}
	text, err := json.Marshal(tally)
	must(err)
	must(os.WriteFile(filepath.Join(folder, "tally"), text, 0o600))
	fmt.Printf("{\"load_s\": %.4f, \"us_per_event\": %.4f, \"events\": %d, \"checked\": %d}\n",
		load, passes[len(passes)/2]/float64(n)*1e6, n, checked)
}

var found int

func pass(matcher *quamina.Quamina, events [][]byte) float64 {
	start := time.Now()
	for _, event := range events {
		for _, id := range match(matcher, event) {
			found += id.(int)
		}
	}
	return time.Since(start).Seconds()
}

func match(matcher *quamina.Quamina, event []byte) []quamina.X {
	ids, err := matcher.MatchesForEvent(event)
	must(err)
	return ids
}

func lines(path string) [][]byte {
	file, err := os.Open(path)
	must(err)
	defer file.Close()
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 1<<24)
	var all [][]byte
	for scanner.Scan() {
		all = append(all, slices.Clone(scanner.Bytes()))
	}
	must(scanner.Err())
	return all
}

func number(text string) float64 {
	value, err := strconv.ParseFloat(text, 64)
	must(err)
	return value
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
