// Light, dark, or as the system says.

import { h, icon, put } from "./dom.js";

const ORDER = ["auto", "light", "dark"];
const PICTURES = { auto: "auto", light: "sun", dark: "moon" };
const NAMES = { auto: "Theme: automatic", light: "Theme: light", dark: "Theme: dark" };

const chosen = () => (ORDER.includes(localStorage.getItem("theme")) ? localStorage.getItem("theme") : "auto");

export function applyTheme() {
  const theme = chosen();
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

export function themeSwitch() {
  const made = h("button", { type: "button", class: "button ghost", id: "theme" });
  const draw = () => put(made, icon(PICTURES[chosen()]), h("span", null, NAMES[chosen()]));
  made.addEventListener("click", () => {
    localStorage.setItem("theme", ORDER[(ORDER.indexOf(chosen()) + 1) % ORDER.length]);
    applyTheme();
    draw();
  });
  draw();
  return made;
}
