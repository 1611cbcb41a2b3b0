// The form of a subscription. Its filter is checked as it is typed: a mistake is shown with a caret under its place, and what
// is probably not meant (lint) is listed.

import { call, post, at } from "./api.js";
import { h, put } from "./dom.js";
import { badge, button, complain, debounced, field, input, toast } from "./ui.js";
import { typeName } from "./views/spaces.js";

const CHECK_MS = 200;

/** The form for a new subscription, or for one that exists. */
export function editor(space, subscription, saved, cancel) {
  const filter = h("textarea", { class: "input code", name: "filter", rows: 3, required: true, spellcheck: "false", placeholder: example(space.schema) });
  filter.value = subscription?.filter ?? "";
  const id = input({ name: "id", value: subscription?.id ?? "", disabled: Boolean(subscription), placeholder: "made up if empty", maxlength: 200 });
  const subscriber = input({ name: "subscriber", value: subscription?.subscriber ?? "", placeholder: "the id", maxlength: 200 });
  const labels = input({ name: "labels", value: Object.entries(subscription?.labels ?? {}).map((pair) => pair.join(":")).join(", "), placeholder: "team:desk-1, …" });
  const verdict = h("div", { class: "verdict", role: "status", id: "verdict" });
  const save = button(subscription ? "Save" : "Register", null, { kind: "primary", type: "submit" });
  const check = checker(space, filter, verdict);
  filter.addEventListener("input", check);

  const filterField = field("Filter", filter);
  filter.setAttribute("aria-describedby", verdict.id);
  const form = h(
    "form",
    { class: "card" },
    h("h2", null, subscription ? `Edit ${subscription.id}` : "New subscription"),
    filterField,
    attributes(space.schema, filter, check),
    verdict,
    h("div", { class: "grid" }, field("Id", id), field("Subscriber", subscriber), field("Labels", labels)),
    h("div", { class: "actions" }, save, button("Cancel", cancel)),
  );
  form.addEventListener("keydown", (event) => event.key === "Escape" && cancel());
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const body = { filter: filter.value, subscriber: subscriber.value.trim() || null, labels: read(labels.value) };
    if (subscription) Object.assign(body, { expires_at: subscription.expires_at, paused: subscription.state === "paused" });
    save.disabled = true;
    try {
      const made = subscription
        ? await call("PUT", at`spaces/${space.name}/subscriptions/${subscription.id}`, body)
        : await post(at`spaces/${space.name}/subscriptions`, { ...body, id: id.value.trim() || null });
      toast(`${made.id} is live from version ${made.version} on`);
      await saved();
    } catch (error) {
      if (error.problem?.caret) showError(filter, verdict, error.problem);
      else complain(error);
    } finally {
      save.disabled = false;
    }
  });
  if (filter.value) check();
  return form;
}

/** Labels as they are written: name:value, separated by commas. */
function read(text) {
  const pairs = text.split(",").map((part) => part.trim()).filter(Boolean).map((part) => part.split(":"));
  return Object.fromEntries(pairs.map(([name, ...value]) => [name.trim(), value.join(":").trim()]));
}

function example(schema) {
  const text = Object.entries(schema).find(([, type]) => typeName(type) === "string")?.[0];
  const amount = Object.entries(schema).find(([, type]) => ["double", "bigint", "integer", "int"].includes(typeName(type)))?.[0];
  return [text && `${text} = 'IBM'`, amount && `${amount} < 120`].filter(Boolean).join(" AND ");
}

/** Buttons that write the name of an attribute into the filter. */
function attributes(schema, filter, check) {
  const insert = (name) => {
    filter.setRangeText(/^\w+$/.test(name) ? name : `\`${name}\``, filter.selectionStart, filter.selectionEnd, "end");
    filter.focus();
    check();
  };
  const chip = ([name, type]) => h("li", null, h("button", { type: "button", class: "chip", onclick: () => insert(name) }, h("b", null, name), ` ${typeName(type)}`));
  return h("ul", { class: "chips", "aria-label": "Attributes: press one to write its name" }, Object.entries(schema).map(chip));
}

/** A function that checks the filter a moment after the last key. */
function checker(space, filter, verdict) {
  let turn = 0;
  return debounced(CHECK_MS, async () => {
    const mine = ++turn;
    const text = filter.value;
    if (!text.trim()) {
      filter.removeAttribute("aria-invalid");
      return put(verdict);
    }
    try {
      const checked = await post(at`spaces/${space.name}/filters/check`, { filter: text });
      const lint = checked.ok ? await post(at`spaces/${space.name}/filters/lint`, { filters: { filter: text } }) : null;
      if (mine !== turn) return;
      if (checked.ok) showOk(filter, verdict, checked, lint.findings);
      else showError(filter, verdict, checked);
    } catch (error) {
      if (mine === turn) complain(error);
    }
  });
}

function showOk(filter, verdict, checked, findings) {
  filter.setAttribute("aria-invalid", "false");
  const count = checked.clauses === 1 ? "1 clause" : `${checked.clauses} clauses`;
  const found = findings.map((one) => h("li", null, badge(one.severity), " ", `${one.message}; `, h("b", null, one.advice)));
  put(verdict, h("p", { class: "ok" }, `The filter is valid: ${count}.`), found.length ? h("ul", { class: "findings" }, found) : null);
}

function showError(filter, verdict, problem) {
  filter.setAttribute("aria-invalid", "true");
  const cut = problem.caret.lastIndexOf("\n");
  const picture = h("pre", { class: "caret", tabindex: "0", "aria-label": `Line ${problem.line}, column ${problem.column}` }, problem.caret.slice(0, cut + 1), h("span", { class: "mark" }, problem.caret.slice(cut + 1)));
  put(verdict, h("p", { class: "error" }, `Line ${problem.line}, column ${problem.column}: ${problem.detail}`), picture);
}
