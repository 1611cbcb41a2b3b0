// Parts that several views use: fields, buttons, badges, dialogs, toasts, times and numbers.

import { h, icon, newId, put } from "./dom.js";

/** A labelled control. `note` is below it and belongs to it. */
export function field(label, control, note) {
  control.id ||= newId("field");
  const hint = note ? h("p", { class: "hint", id: `${control.id}-hint` }, note) : null;
  if (hint) control.setAttribute("aria-describedby", hint.id);
  return h("div", { class: "field" }, h("label", { for: control.id }, label), control, hint);
}

export const input = (attributes) => h("input", { class: "input", autocomplete: "off", spellcheck: "false", ...attributes });

export function select(options, attributes) {
  const choices = options.map(([value, text]) => h("option", { value, selected: value === attributes?.value }, text));
  return h("select", { class: "input", ...attributes }, choices);
}

/** A button that is off while its action runs, and says what went wrong. */
export function button(text, action, { kind = "", picture, label, type = "button" } = {}) {
  const made = h("button", { type, class: `button ${kind}`, "aria-label": label }, picture && icon(picture), h("span", null, text));
  if (action) {
    made.addEventListener("click", async (event) => {
      made.disabled = true;
      try {
        await action(event);
      } catch (error) {
        complain(error);
      } finally {
        made.disabled = false;
      }
    });
  }
  return made;
}

const TONES = {
  active: "good", delivered: "good", ok: "good", paused: "warn", pending: "info", held: "warn", unverified: "warn", muted: "warn",
  snoozed: "warn", expired: "quiet", deleted: "quiet", dead: "bad", disabled: "bad", error: "bad", warning: "warn", note: "info",
};

export const badge = (text, tone) => h("span", { class: `badge ${tone ?? TONES[text] ?? "quiet"}` }, text);

/** The head of a view; `actions` are at its right. */
export function head(title, intro, ...actions) {
  return h(
    "header",
    { class: "head" },
    h("div", null, h("h1", { tabindex: "-1" }, title), intro && h("p", { class: "intro" }, intro)),
    actions.length ? h("div", { class: "actions" }, actions) : null,
  );
}

/** What a view shows where there is nothing yet: what to do first. */
export function empty(title, text, ...actions) {
  return h("div", { class: "empty" }, h("h2", null, title), h("p", null, text), actions.length ? h("div", { class: "actions" }, actions) : null);
}

export const card = (title, ...children) => h("section", { class: "card" }, title && h("h2", null, title), children);

export function toast(text, tone = "good") {
  const note = h("div", { class: `toast ${tone}` }, text);
  document.getElementById("toasts").append(note);
  setTimeout(() => note.remove(), tone === "bad" ? 8000 : 4000);
}

/** Say what went wrong. What is a mistake of ours also goes to the browser's console. */
export function complain(error) {
  if (error.status === undefined) console.error(error);
  toast(error.message, "bad");
}

/** Ask before something is done that cannot be undone; resolves to true or false. */
export function confirm(question, text, action) {
  return new Promise((resolve) => {
    const title = newId("dialog");
    const dialog = h("dialog", { "aria-labelledby": title });
    const close = (answer) => {
      dialog.close();
      dialog.remove();
      resolve(answer);
    };
    put(
      dialog,
      h("h2", { id: title }, question),
      h("p", null, text),
      h("div", { class: "actions end" }, button("Cancel", () => close(false)), button(action, () => close(true), { kind: "danger" })),
    );
    dialog.addEventListener("cancel", () => close(false));
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** A secret that is shown once. */
export function secretNote(what, secret) {
  const text = h("code", { class: "secret" }, secret);
  const copy = button("Copy", async () => {
    await navigator.clipboard.writeText(secret);
    toast("Copied");
  });
  return h("div", { class: "notice warn", role: "status" }, h("p", null, `${what} It is shown only now.`), h("div", { class: "secret-line" }, text, copy));
}

const NUMBERS = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
export const number = (value) => (value === null || value === undefined ? "–" : NUMBERS.format(value));

/** A time as the clock shows it; the whole moment is in the tooltip. */
export function moment(iso) {
  if (!iso) return "–";
  const date = new Date(iso);
  const isToday = date.toDateString() === new Date().toDateString();
  const clock = date.toLocaleTimeString("en-GB");
  const text = isToday ? clock : `${date.toLocaleDateString("en-CA")} ${clock.slice(0, 5)}`;
  return h("time", { datetime: iso, title: date.toISOString() }, text);
}

const TOKENS = /('(?:[^']|'')*')|(\b\d+(?:\.\d+)?\b)|(\b(?:AND|OR|NOT|IN|LIKE|ILIKE|RLIKE|BETWEEN|IS|NULL|TRUE|FALSE|MATCHES|KEYWORDS|PHRASE|CASE|WHEN|THEN|ELSE|END)\b)/gi;

/** A filter with its texts, numbers and words in colours. */
export function sql(text) {
  const code = h("code", { class: "sql" });
  let end = 0;
  for (const found of text.matchAll(TOKENS)) {
    const kind = found[1] ? "text" : found[2] ? "number" : "word";
    code.append(text.slice(end, found.index), h("span", { class: `sql-${kind}` }, found[0]));
    end = found.index + found[0].length;
  }
  code.append(text.slice(end));
  return code;
}

/** Call something again and again until the returned function is called; one call at a time. The first failure in a row is told. */
export function every(milliseconds, work) {
  let timer = null;
  let isOver = false;
  let hasFailed = false;
  const step = async () => {
    try {
      if (!document.hidden) await work();
      hasFailed = false;
    } catch (error) {
      if (!hasFailed && !isOver) complain(error);
      hasFailed = true;
    }
    if (!isOver) timer = setTimeout(step, milliseconds);
  };
  step();
  return () => {
    isOver = true;
    clearTimeout(timer);
  };
}

/** A function that waits until it was not called for a while. */
export function debounced(milliseconds, work) {
  let timer = null;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...values), milliseconds);
  };
}
