// Lines over the last minutes, drawn as SVG. The newest second is at the right.

import { h, put, svg } from "./dom.js";
import { number } from "./ui.js";

const WIDTH = 640, HEIGHT = 180, LEFT = 62, BOTTOM = 28, TOP = 12, RIGHT = 8;

/** A round number at or above a value: 1, 2 or 5 times a power of ten. */
export function ceiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * 0.9999);
}

/** Pieces of a line without its gaps, as points of the picture. */
function pieces(values, x, y) {
  const found = [[]];
  values.forEach((value, n) => {
    if (value === null) found.push([]);
    else found.at(-1).push([x(n), y(value)]);
  });
  return found.filter((piece) => piece.length);
}

const path = (piece) => piece.map(([x, y], n) => `${n ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

/** A small line without axes, beside a figure. */
export function sparkline(values) {
  const top = Math.max(1, ...values), width = 120, height = 32;
  const line = pieces(values, (n) => (n * width) / Math.max(1, values.length - 1), (v) => height - 2 - (v / top) * (height - 4));
  const frame = { viewBox: `0 0 ${width} ${height}`, class: "sparkline", preserveAspectRatio: "none", "aria-hidden": "true" };
  return svg("svg", frame, line.map((piece) => svg("path", { class: "line line-0", d: path(piece) })));
}

/** A chart with a title and a legend; `draw(series)` shows [{name, values}], each with a value per second. */
export function chart(title, unit, { filled = false } = {}) {
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "chart", role: "img" });
  const legend = h("p", { class: "legend" });
  let shown = [];

  function draw(series) {
    shown = series;
    const count = Math.max(2, series[0].values.length);
    const known = series.flatMap((one) => one.values.filter((value) => value !== null));
    const top = ceiling(Math.max(0, ...known));
    const x = (n) => LEFT + (n * (WIDTH - LEFT - RIGHT)) / (count - 1);
    const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - BOTTOM - TOP);
    const grid = [0, 0.5, 1].map((part) => [
      svg("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(part * top), y2: y(part * top) }),
      svg("text", { class: "axis", x: LEFT - 8, y: y(part * top) + 6, "text-anchor": "end" }, number(part * top)),
    ]);
    const times = [0, 0.5, 1].map((part) => {
      const ago = Math.round((1 - part) * count);
      const anchor = part === 0 ? "start" : part === 1 ? "end" : "middle";
      return svg("text", { class: "axis", x: x(part * (count - 1)), y: HEIGHT - 5, "text-anchor": anchor }, ago ? `${ago} s ago` : "now");
    });
    const lines = series.flatMap((one, place) =>
      pieces(one.values, x, y).map((piece) => {
        const area = `${path(piece)}L${piece.at(-1)[0]} ${y(0)}L${piece[0][0]} ${y(0)}Z`;
        return [
          filled && place === 0 ? svg("path", { class: "area", d: area }) : null,
          piece.length === 1
            ? svg("circle", { class: `dot dot-${place}`, cx: piece[0][0], cy: piece[0][1], r: 2 })
            : svg("path", { class: `line line-${place}`, d: path(piece) }),
        ];
      }),
    );
    put(picture, grid, times, lines);
    const last = series.map((one) => `${one.name} ${number(one.values.findLast((v) => v !== null))} ${unit}`.trim());
    const most = number(known.length ? Math.max(...known) : 0);
    picture.setAttribute("aria-label", `${title}: ${last.join(", ")}; at most ${most} ${unit} in the last ${count} seconds`);
    point(null);
  }

  /** The legend: the newest values, or those under the pointer. */
  function point(place) {
    put(
      legend,
      shown.map((one, n) => {
        const value = place === null ? one.values.findLast((v) => v !== null) : one.values[place];
        return h("span", { class: `key key-${n}` }, `${one.name} `, h("b", null, number(value)), ` ${unit}`);
      }),
      place !== null && h("span", { class: "when" }, `${shown[0].values.length - place} s ago`),
    );
  }

  picture.addEventListener("pointermove", (event) => {
    if (!shown.length) return;
    const box = picture.getBoundingClientRect();
    const part = (((event.clientX - box.left) / box.width) * WIDTH - LEFT) / (WIDTH - LEFT - RIGHT);
    point(Math.min(shown[0].values.length - 1, Math.max(0, Math.round(part * (shown[0].values.length - 1)))));
  });
  picture.addEventListener("pointerleave", () => point(null));
  return { element: h("section", { class: "card chart-card" }, h("h2", null, title), legend, picture), draw };
}
