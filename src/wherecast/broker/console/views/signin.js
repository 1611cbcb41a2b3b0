// Sign in with a token. It goes to the broker once; what stays in the browser is a cookie that scripts cannot read.

import { signIn } from "../api.js";
import { h, put } from "../dom.js";
import { themeSwitch } from "../theme.js";
import { button, field, input } from "../ui.js";

export function mount(root, signedIn) {
  const token = input({ type: "password", name: "token", required: true, autocomplete: "current-password", placeholder: "wc_…" });
  const wrong = h("p", { class: "error", role: "alert" });
  const form = h(
    "form",
    { class: "card signin" },
    h("img", { src: "console/assets/mark.svg", alt: "", width: 44, height: 44 }),
    h("h1", null, "Sign in to Wherecast"),
    h("p", { class: "intro" }, "Events reach exactly the subscribers whose filter they satisfy."),
    field("Token", token, "wherecast serve printed one at its first start. An admin can make more."),
    wrong,
    button("Sign in", null, { kind: "primary wide", type: "submit" }),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await signIn(token.value.trim());
      await signedIn();
    } catch (error) {
      put(wrong, error.message);
      token.setAttribute("aria-invalid", "true");
      token.focus();
    }
  });
  put(root, h("main", { class: "door" }, form, themeSwitch()));
  token.focus();
}
