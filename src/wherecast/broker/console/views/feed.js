// Matches as they happen. The broker may send thousands a second: they are drawn a few times a second, the newest first.

import { get, withQuery, at } from "../api.js";
import { sparkline } from "../chart.js";
import { h, put } from "../dom.js";
import { badge, button, every, field, head, input, moment, number } from "../ui.js";

const SHOWN = 60, BEFORE = 30, DRAW_MS = 300, POLL_MS = 2000, AGAIN_MS = 3000, TAGS = 4;

export async function mount(root, context) {
  const space = context.space.name;
  const only = input({ name: "subscriber", placeholder: "all", list: null });
  const list = h("ul", null);
  const log = h("div", { class: "events", role: "log", "aria-live": "off", "aria-label": "Matches, newest first", tabindex: "0" }, list);
  const told = h("p", { class: "visually-hidden", role: "status" });
  const link = badge("connecting", "quiet");
  const figures = tiles();
  let waiting = [];
  let total = 0;
  let isPaused = false;
  let source = null;
  let again = null;

  const hold = button("Pause", () => {
    isPaused = !isPaused;
    hold.setAttribute("aria-pressed", String(isPaused));
    hold.querySelector("span").textContent = isPaused ? "Go on" : "Pause";
  });
  hold.setAttribute("aria-pressed", "false");
  hold.id = "hold";

  /** Begin with what matched lately, so that the page is not empty when it opens. */
  async function open() {
    source?.close();
    waiting = [];
    put(list, hint(context));
    const now = await get(at`spaces/${space}`);
    const from = Math.max(now.earliest_position, now.next_position - BEFORE) - 1;
    source = new EventSource(`v1/${withQuery(at`spaces/${space}/feed`, { subscriber: only.value.trim(), from: from < 0 ? "earliest" : from })}`);
    source.onopen = () => set(link, "live", "good");
    source.onerror = () => {
      set(link, "connecting again", "warn");
      if (source.readyState === EventSource.CLOSED) again = setTimeout(open, AGAIN_MS);  // the browser has given up
    };
    source.onmessage = (message) => {
      total += 1;
      waiting.push(message.data);
      if (waiting.length > SHOWN) waiting.shift();
    };
  }

  const drawing = setInterval(() => {
    if (isPaused || !waiting.length) return;
    list.querySelector(".waiting")?.remove();
    list.prepend(...waiting.reverse().map((text) => row(JSON.parse(text))));
    waiting = [];
    while (list.children.length > SHOWN) list.lastElementChild.remove();
  }, DRAW_MS);
  const telling = setInterval(() => {
    if (total) told.textContent = `${number(total)} matching events so far`;
  }, 10000);
  const stopPolling = every(POLL_MS, async () => figures.draw(await get("statistics", { space, seconds: 60 })));

  only.addEventListener("change", open);
  put(
    root,
    head("Live feed", [`Events of ${space} that match at least one filter. `, link], hold),
    figures.element,
    h("section", { class: "card flush", "aria-label": "Matches" }, h("div", { class: "bar" }, field("Subscriber", only)), log, told),
  );
  await open();
  return () => {
    source.close();
    clearTimeout(again);
    clearInterval(drawing);
    clearInterval(telling);
    stopPolling();
  };
}

function set(element, text, tone) {
  element.textContent = text;
  element.className = `badge ${tone}`;
}

function hint(context) {
  const steps = context.space.subscriptions
    ? ["Nothing has matched since you came. ", h("a", { href: `#/${encodeURIComponent(context.space.name)}/publish` }, "Publish an event"), " to try it."]
    : ["There are no filters here yet. ", h("a", { href: `#/${encodeURIComponent(context.space.name)}/subscriptions` }, "Register one"), " first."];
  return h("li", { class: "waiting" }, steps);
}

function row(event) {
  const pairs = Object.entries(event.data).filter(([, value]) => value !== null).map(([name, value]) => h("span", { class: "pair" }, h("span", { class: "name" }, name), " ", h("span", { class: "value" }, show(value))));
  const names = event.subscriptions.slice(0, TAGS).map((id) => h("span", { class: "tag" }, id));
  const more = event.subscriptions.length - names.length;
  return h(
    "li",
    { class: "event" },
    h("span", { class: "time" }, moment(event.time)),
    h("span", { class: "pairs" }, pairs),
    h("span", { class: "tags" }, h("span", { class: "visually-hidden" }, "matches "), names, more > 0 ? h("span", { class: "tag more" }, `and ${number(more)} more`) : null),
  );
}

const EXACT = new Intl.NumberFormat("en", { maximumFractionDigits: 17 });
const show = (value) => (typeof value === "string" ? value : typeof value === "number" ? EXACT.format(value) : JSON.stringify(value));

/** The figures above the list. */
function tiles() {
  const make = (name) => {
    const value = h("b", null, "–"), line = h("span", { class: "spark" });
    return { value, line, element: h("div", { class: "tile" }, h("span", { class: "tile-name" }, name), value, line) };
  };
  const matches = make("matches per second"), events = make("events per second"), time = make("publish p99, ms"), filters = make("live filters");
  const mean = (values) => values.slice(-5).reduce((sum, value) => sum + value, 0) / Math.min(5, values.length);
  return {
    element: h("section", { class: "tiles figures", "aria-label": "Figures" }, [matches, events, time, filters].map((one) => one.element)),
    draw(figures) {
      put(matches.value, number(mean(figures.matches)));
      put(matches.line, sparkline(figures.matches));
      put(events.value, number(mean(figures.events)));
      put(events.line, sparkline(figures.events));
      put(time.value, number(figures.publish_ms.p99.findLast((value) => value !== null)));
      put(time.line, sparkline(figures.publish_ms.p99));
      put(filters.value, number(figures.subscriptions));
    },
  };
}
