// Publish an event, or ask first whom it would reach and why the others would not get it.

import { get, post, at } from "../api.js";
import { h, icon, put } from "../dom.js";
import { badge, button, card, complain, field, head, number, toast } from "../ui.js";
import { typeName } from "./spaces.js";

const EXPLAINED = 50, OPEN = 6;

export function mount(root, context) {
  const space = context.space.name;
  const event = h("textarea", { class: "input code", name: "event", rows: 9, spellcheck: "false" });
  event.value = JSON.stringify(sample(context.space.schema), null, 2);
  const wrong = h("p", { class: "error", role: "alert" });
  const outcome = h("div", { role: "region", "aria-live": "polite", "aria-label": "Outcome" });
  put(outcome, h("p", { class: "hint pad" }, "Explain tries the event on all filters without publishing it. Publish makes it durable and tells the subscribers."));

  const attempt = (work) => async () => {
    put(wrong);
    event.removeAttribute("aria-invalid");
    try {
      await work(JSON.parse(event.value));
    } catch (error) {
      if (!(error instanceof SyntaxError) && error.status === undefined) return complain(error);
      event.setAttribute("aria-invalid", "true");
      put(wrong, error instanceof SyntaxError ? `This is not JSON: ${error.message}` : error.message);
    }
  };
  const explain = button("Explain", attempt(async (values) => put(outcome, await explained(space, values))));
  const send = button("Publish", attempt(async (values) => {
    const receipt = await post(at`spaces/${space}/publish`, values);
    toast(receipt.matches === 1 ? "Published: 1 match" : `Published: ${number(receipt.matches)} matches`);
    put(outcome, received(receipt), await explained(space, values));
  }), { kind: "primary", picture: "publish" });
  event.addEventListener("keydown", (key) => key.key === "Enter" && (key.ctrlKey || key.metaKey) && send.click());

  put(
    root,
    head("Publish", `Send an event to ${space}, or see first whom it would reach.`),
    h("div", { class: "columns" }, card("Event", field("JSON", event, "Ctrl+Enter publishes."), wrong, h("div", { class: "actions" }, context.may("publish") ? send : null, explain)), card("Who gets it", outcome)),
  );
}

function received(receipt) {
  return h("p", { class: "ok" }, `On disk at position ${receipt.positions[0]}, matched by ${number(receipt.matches)} subscriptions.`);
}

/** An event that fits a schema. */
function sample(schema) {
  const values = { boolean: true, date: "2026-01-31", timestamp: new Date().toISOString() };
  const of = (type) => values[type] ?? (type.startsWith("array") ? [] : type.startsWith("map") ? {} : type.startsWith("decimal") ? "119.5" : 100);
  const texts = ["IBM", "some text"], numbers = [119.5, 1.5];
  const next = (type) => {
    if (type === "string") return texts.length > 1 ? texts.shift() : texts[0];
    if (type === "double" || type === "float") return numbers.length > 1 ? numbers.shift() : numbers[0];
    return of(type);
  };
  return Object.fromEntries(Object.entries(schema).map(([name, type]) => [name, next(typeName(type))]));
}

async function explained(space, values) {
  const page = await get(at`spaces/${space}/subscriptions`, { limit: EXPLAINED });
  const first = await post(at`spaces/${space}/match`, { event: values, limit: EXPLAINED });
  const asked = [...new Set([...first.subscriptions, ...page.subscriptions.map((one) => one.id)])].slice(0, EXPLAINED);
  const answer = await post(at`spaces/${space}/match`, { event: values, explain: asked, limit: EXPLAINED });
  const rows = asked.map((id) => ({ id, ...answer.explanations[id] }));
  rows.sort((a, b) => b.matches - a.matches || failed(a) - failed(b));
  const title = answer.matches === 1 ? "1 filter matches" : `${number(answer.matches)} filters match`;
  const rest = page.next ? h("p", { class: "hint" }, `Shown are those that match and some of the others, ${EXPLAINED} at most.`) : null;
  return h("div", null, h("p", { class: "count" }, title), h("ul", { class: "verdicts" }, rows.map((row, n) => verdict(row, n < OPEN))), rest);
}

const failed = (row) => Math.min(99, ...row.clauses.map((clause) => clause.predicates.filter((one) => one.holds !== true).length));

function verdict(row, isOpen) {
  const clauses = row.clauses.map((clause, n) => [
    row.clauses.length > 1 ? h("p", { class: "hint" }, `Clause ${n + 1} ${clause.holds ? "holds" : "fails"}`) : null,
    h("ul", { class: "predicates" }, clause.predicates.map(predicate)),
  ]);
  const title = h("summary", null, icon(row.matches ? "check" : "cross"), h("b", null, row.id), badge(row.matches ? "matches" : "no match", row.matches ? "good" : "quiet"));
  const told = row.clauses.length ? clauses : h("p", { class: "hint" }, row.text);
  return h("li", { class: row.matches ? "yes" : "no" }, h("details", { open: isOpen }, title, told));
}

const WORDS = new Map([[true, ["check", "holds"]], [false, ["cross", "fails"]], [null, ["cross", "is unknown"]]]);

function predicate(one) {
  const [picture, word] = WORDS.get(one.holds ?? null);
  const value = one.value === null ? null : h("span", { class: "hint" }, `the event has ${one.value}`);
  const parts = one.parts.length ? h("ul", { class: "predicates" }, one.parts.map(predicate)) : null;
  return h("li", { class: word === "holds" ? "holds" : "fails" }, icon(picture), h("code", null, one.predicate), h("span", { class: "word" }, word), value, parts);
}
