// Elements from data. Texts become text nodes, never markup: nothing that a user wrote can become a tag.

const SVG = "http://www.w3.org/2000/svg";
const PROPERTIES = new Set(["value", "checked", "disabled", "hidden", "open", "selected"]);

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (PROPERTIES.has(name)) element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** An HTML element: h("p", {class: "hint"}, "text", child). */
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Replace what an element contains. */
export function put(element, ...children) {
  element.replaceChildren();
  return fill(element, null, children);
}

let ids = 0;
export const newId = (word) => `${word}-${++ids}`;

const PATHS = {
  feed: "M4 11a9 9 0 0 1 9 9M4 4a16 16 0 0 1 16 16M5.5 18.5h.01",
  subscriptions: "M3 5h18l-7 8.5V19l-4 2v-7.5z",
  publish: "M21 3 10.5 13.5M21 3l-6.5 18-4-7.5L3 9.5z",
  subscribers: "M16 20v-1.5a4 4 0 0 0-4-4H7a4 4 0 0 0-4 4V20M9.5 4a3.5 3.5 0 1 1 0 7 3.5 3.5 0 0 1 0-7M21 20v-1.5a4 4 0 0 0-3-3.8M16 4.2a3.5 3.5 0 0 1 0 6.6",
  deliveries: "M3 7l9 6 9-6M4 5h16a1 1 0 0 1 1 1v12a1 1 0 0 1-1 1H4a1 1 0 0 1-1-1V6a1 1 0 0 1 1-1z",
  load: "M3 20h18M6 16l4-5 4 3 6-8",
  access: "M15 9a5 5 0 1 0-4.6 5L12 15.5h2V18h2v2.5h4V17l-5.3-5.3A5 5 0 0 0 15 9zM8.5 8.5h.01",
  spaces: "M12 3l9 5-9 5-9-5zM3 13l9 5 9-5",
  menu: "M4 7h16M4 12h16M4 17h16",
  sun: "M12 8a4 4 0 1 1 0 8 4 4 0 0 1 0-8M12 2v2M12 20v2M4.9 4.9l1.4 1.4M17.7 17.7l1.4 1.4M2 12h2M20 12h2M4.9 19.1l1.4-1.4M17.7 6.3l1.4-1.4",
  moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.5z",
  auto: "M12 3a9 9 0 1 1 0 18 9 9 0 0 1 0-18M12 3v18",
  out: "M15 4h4a1 1 0 0 1 1 1v14a1 1 0 0 1-1 1h-4M10 8l-4 4 4 4M6 12h10",
  plus: "M12 5v14M5 12h14",
  check: "M5 12.5l4.5 4.5L19 7.5",
  cross: "M6 6l12 12M18 6L6 18",
  replay: "M4 4v6h6M4.6 14a8 8 0 1 0 1.6-8.2L4 8",
};

/** A picture beside a text; screen readers skip it. */
export function icon(name) {
  const attributes = { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true", focusable: "false" };
  return svg("svg", attributes, svg("path", { d: PATHS[name] }));
}
