// Subscriptions: find them, register and change them with checks as you type, pause, resume and delete them, see their history.

import { call, get, post, at } from "../api.js";
import { h, put } from "../dom.js";
import { badge, button, confirm, debounced, empty, field, head, input, moment, number, select, sql, toast } from "../ui.js";
import { editor } from "../editor.js";

const PAGE = 50;

export async function mount(root, context) {
  const space = context.space.name;
  const path = at`spaces/${space}/subscriptions`;
  const text = input({ type: "search", name: "text", placeholder: "id or part of a filter" });
  const state = select([["", "any"], ["active", "active"], ["paused", "paused"], ["expired", "expired"]], { name: "state" });
  const list = h("ul", { class: "rows", "aria-label": "Subscriptions" });
  const more = h("div", { class: "more" });
  const place = h("div", { id: "editor" });

  let turn = 0; // an answer that was overtaken by a later question is not shown
  async function load(after = "") {
    const mine = ++turn;
    const page = await get(path, { limit: PAGE, after, text: text.value.trim(), state: state.value });
    if (mine !== turn) return;
    if (!after) put(list);
    list.append(...page.subscriptions.map(row));
    put(more, page.next ? button("Show more", () => load(page.next)) : null);
    if (!list.children.length) list.append(h("li", { class: "bare" }, nothing()));
  }

  function nothing() {
    if (text.value || state.value) return empty("Nothing found", "No subscription has this text and this state.");
    const what = "A subscription is a filter: a SQL condition over the attributes of an event. Whoever registers it gets the events for which it is true.";
    return empty("Register the first filter", what, context.may("subscribe") ? button("New subscription", () => edit(null), { kind: "primary", picture: "plus" }) : null);
  }

  function edit(subscription) {
    const close = () => put(place);
    put(place, editor(context.space, subscription, async () => { close(); await load(); }, close));
    place.querySelector("textarea").focus();
    place.scrollIntoView({ block: "nearest" });
  }

  function row(subscription) {
    const item = h("li", { class: "row" });
    const detail = h("div", { class: "detail" });
    const change = async (method, word, done) => {
      const changed = await call(method, at`spaces/${space}/subscriptions/${subscription.id}` + word);
      toast(`${subscription.id} is ${done}`);
      if (changed) item.replaceWith(row(changed));
      else await load();
    };
    const name = (word) => ({ kind: "small", label: `${word} ${subscription.id}` });
    const tools = context.may("subscribe") ? [
      subscription.state === "active"
        ? button("Pause", () => change("POST", "/pause", "paused"), name("Pause"))
        : button("Resume", () => change("POST", "/resume", "active again"), name("Resume")),
      button("Edit", () => edit(subscription), name("Edit")),
    ] : [];
    const remove = button("Delete", async () => {
      const sure = await confirm(`Delete ${subscription.id}?`, "Feeds keep what it has matched until now.", "Delete");
      if (sure) await change("DELETE", "", "deleted");
    }, name("Delete"));
    const past = button("History", async () => {
      if (detail.children.length) return put(detail);
      put(detail, history(await get(at`spaces/${space}/subscriptions/${subscription.id}/history`)));
    }, name("History of"));
    const labels = Object.entries(subscription.labels).map(([key, value]) => h("span", { class: "tag" }, `${key}: ${value}`));
    return put(
      item,
      h("div", { class: "row-head" }, h("h2", null, subscription.id), badge(subscription.state), h("span", { class: "hint" }, `for ${subscription.subscriber}`), labels),
      sql(subscription.filter),
      h("div", { class: "row-foot" }, h("span", { class: "hint" }, `version ${number(subscription.version)}, changed `, moment(subscription.updated_at)), h("div", { class: "actions" }, tools, past, context.may("subscribe") ? remove : null)),
      detail,
    );
  }

  text.addEventListener("input", debounced(250, () => load()));
  state.addEventListener("change", () => load());
  put(
    root,
    head("Subscriptions", `Filters of ${space}. A change is live when it is confirmed.`, context.may("subscribe") ? button("New subscription", () => edit(null), { kind: "primary", picture: "plus" }) : null),
    place,
    h("div", { class: "bar" }, field("Find", text), field("State", state)),
    list,
    more,
  );
  await load();
}

const WORDS = { create: "created", replace: "replaced", active: "resumed" };

function history(changes) {
  if (!changes.length) return h("p", { class: "hint" }, "Nothing is recorded; it came with a load of many.");
  const line = (change) => h("li", null, h("span", { class: "hint" }, moment(change.time)), h("b", null, ` ${WORDS[change.action] ?? change.action} `), h("span", { class: "hint" }, `by ${change.actor}, version ${number(change.version)}`), change.filter ? sql(change.filter) : null);
  return h("ol", { class: "history", "aria-label": "History" }, changes.map(line));
}
