// Load and latency of the last minutes, for one space or all of them.

import { get } from "../api.js";
import { chart } from "../chart.js";
import { h, put } from "../dom.js";
import { every, field, head, select } from "../ui.js";

const POLL_MS = 2000;

export function mount(root, context) {
  const names = [["", "all spaces"], ...context.spaces.map((space) => [space.name, space.name])];
  const space = select(names, { name: "of", value: "" });
  const span = select([["60", "last minute"], ["300", "last 5 minutes"]], { name: "seconds", value: "60" });
  const events = chart("Events", "per second", { filled: true });
  const matches = chart("Matches", "per second", { filled: true });
  const times = chart("Time of a publish", "ms");
  const ended = chart("Deliveries", "per second");

  async function poll() {
    const figures = await get("statistics", { space: space.value, seconds: span.value });
    events.draw([{ name: "events", values: figures.events }]);
    matches.draw([{ name: "matches", values: figures.matches }]);
    times.draw([{ name: "p50", values: figures.publish_ms.p50 }, { name: "p99", values: figures.publish_ms.p99 }]);
    ended.draw([{ name: "delivered", values: figures.delivered }, { name: "dead letters", values: figures.dead }]);
  }

  put(
    root,
    head("Load and latency", "Figures of the broker process that answers, second by second. Point at a chart for a moment's values."),
    h("div", { class: "bar" }, field("Space", space), field("Time", span)),
    h("div", { class: "charts" }, events.element, matches.element, times.element, ended.element),
  );
  const stop = every(POLL_MS, poll);
  space.addEventListener("change", poll);
  span.addEventListener("change", poll);
  return stop;
}
