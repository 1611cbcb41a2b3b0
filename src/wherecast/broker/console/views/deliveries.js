// Deliveries and dead letters: what became of each, every attempt, and replay, one by one or all.

import { get, post, at } from "../api.js";
import { h, put } from "../dom.js";
import { badge, button, confirm, empty, every, field, head, input, moment, number, select, toast } from "../ui.js";

const PAGE = 50, POLL_MS = 2000;
const STATES = [["", "any"], ["dead", "dead letters"], ["pending", "pending"], ["held", "held"], ["delivered", "delivered"]];

export function mount(root, context) {
  const state = select(STATES, { name: "state", value: "" });
  const subscriber = input({ type: "search", name: "subscriber", placeholder: "all" });
  const list = h("ul", { class: "rows", "aria-label": "Deliveries" });
  const more = h("div", { class: "more" });
  const counts = h("span", { class: "counts" });
  const rows = new Map(); // by id: the delivery as it was drawn, and its element
  let following = null;
  let turn = 0; // an answer that was overtaken by a later question is not shown
  let isLong = false; // older ones are shown, too: the list stays as it is

  const query = (after) => get("deliveries", { limit: PAGE, after, state: state.value, subscriber: subscriber.value.trim() });

  async function load() {
    const mine = ++turn;
    const page = await query();
    if (mine !== turn) return;
    following = page.next;
    isLong = false;
    place(page.deliveries.length ? page.deliveries.map(drawn) : [h("li", { class: "bare" }, nothing())]);
    put(more, following ? button("Show more", loadMore) : null);
  }

  /** The element of a delivery; the one that is there already, if nothing has changed. */
  function drawn(delivery) {
    const text = JSON.stringify(delivery);
    if (rows.get(delivery.id)?.text !== text) rows.set(delivery.id, { text, element: row(delivery) });
    return rows.get(delivery.id).element;
  }

  /** Show these elements. What stays is not moved, so that focus and open details stay, too. */
  function place(elements) {
    const kept = new Set(elements);
    [...list.children].filter((child) => !kept.has(child)).forEach((child) => child.remove());
    elements.forEach((element, n) => list.children[n] === element || list.insertBefore(element, list.children[n] ?? null));
  }

  async function poll() {
    const { deliveries } = await get("statistics", { seconds: 1 });
    put(counts, ["dead", "pending", "held"].map((name) => badge(`${number(deliveries[name])} ${name}`, deliveries[name] ? tone(name) : "quiet")));
    if (!isLong) await load();
  }

  async function loadMore() {
    const mine = ++turn;
    const page = await query(following);
    if (mine !== turn) return;
    following = page.next;
    isLong = true;
    list.append(...page.deliveries.map(drawn));
    put(more, following ? button("Show more", loadMore) : null);
  }

  function nothing() {
    if (state.value === "dead") return empty("No dead letters", "Everything was delivered, or is still being tried.");
    if (state.value || subscriber.value) return empty("Nothing found", "There is no such delivery.");
    return empty("Nothing was delivered yet", "When an event matches a filter of a subscriber with a route, its delivery is shown here.");
  }

  function row(delivery) {
    const detail = h("div", { class: "detail" });
    const toggle = button("Attempts", async () => {
      if (detail.children.length) return put(detail);
      put(detail, attempts(await get(at`deliveries/${delivery.id}`)));
    }, { kind: "small", label: `Attempts of delivery ${delivery.id}` });
    const replay = button("Replay", async () => {
      await post(at`deliveries/${delivery.id}/replay`);
      toast("It is sent again");
      await load();
    }, { kind: "small", picture: "replay", label: `Replay delivery ${delivery.id}` });
    const what = h("div", { class: "row-head" }, badge(delivery.state), h("h2", null, delivery.subscriber), delivery.subscriptions.map((id) => h("span", { class: "tag" }, id)), h("span", { class: "hint" }, `event ${number(delivery.event)} of ${delivery.space}, `, facts(delivery)));
    const why = delivery.reason ? h("p", { class: delivery.state === "dead" ? "error" : "hint" }, delivery.reason) : null;
    const tools = h("div", { class: "actions" }, delivery.state === "dead" && context.may("subscribe") ? replay : null, toggle);
    return h("li", { class: `row slim ${delivery.state}` }, h("div", { class: "split" }, h("div", null, what, why), tools), detail);
  }

  const replayAll = button("Replay all dead letters", async () => {
    const whose = subscriber.value.trim() || null;
    const text = whose ? `Those of ${whose} are sent again.` : "Those of all subscribers are sent again.";
    if (!(await confirm("Replay all dead letters?", text, "Replay all"))) return;
    const answer = await post("deliveries/replay", { subscriber: whose, before: null });
    toast(answer.replayed === 1 ? "1 delivery is sent again" : `${number(answer.replayed)} deliveries are sent again`);
    await load();
  }, { picture: "replay" });

  put(
    root,
    head("Deliveries", ["What was sent to whom, what is still tried, and what was given up. ", counts], context.may("subscribe") ? replayAll : null),
    h("div", { class: "bar" }, field("State", state), field("Subscriber", subscriber)),
    list,
    more,
  );
  state.addEventListener("change", load);
  subscriber.addEventListener("change", load);
  return every(POLL_MS, poll);
}

const tone = (state) => ({ dead: "bad", pending: "info", held: "warn" })[state];

function facts(delivery) {
  const tries = delivery.tries === 1 ? "1 try" : `${number(delivery.tries)} tries`;
  const when = delivery.finished ? [", finished ", moment(delivery.finished)] : delivery.next_try ? [", next try ", moment(delivery.next_try)] : [];
  return [moment(delivery.created), delivery.route ? ` by ${delivery.route}` : "", `, ${tries}`, ...when];
}

function attempts(delivery) {
  const line = (one) => h("tr", null, h("td", null, moment(one.time)), h("td", null, one.route), h("td", null, one.outcome), h("td", null, one.status ?? "–"), h("td", null, `${number(one.milliseconds)} ms`), h("td", null, one.reason ?? ""));
  const titles = ["time", "route", "outcome", "status", "took", "reason"].map((title) => h("th", { scope: "col" }, title));
  const table = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Attempts" }, h("table", null, h("thead", null, h("tr", null, titles)), h("tbody", null, delivery.attempts.map(line))));
  const body = h("pre", { class: "body", tabindex: "0", "aria-label": "The event" }, JSON.stringify(delivery.event_body, null, 2));
  return [delivery.attempts.length ? table : h("p", { class: "hint" }, "No attempt was made."), body];
}
