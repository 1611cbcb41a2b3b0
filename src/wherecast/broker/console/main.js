// The shell: who is signed in, which space is looked at, and which view is shown. The address says it all: #/quotes/feed.

import { currentSession, get, signIn, signOut, whenSignedOut } from "./api.js";
import { h, icon, put } from "./dom.js";
import { applyTheme, themeSwitch } from "./theme.js";
import { button, complain, empty, head, select } from "./ui.js";
import * as access from "./views/access.js";
import * as deliveries from "./views/deliveries.js";
import * as feed from "./views/feed.js";
import * as load from "./views/load.js";
import * as publish from "./views/publish.js";
import * as signin from "./views/signin.js";
import * as spaces from "./views/spaces.js";
import * as subscribers from "./views/subscribers.js";
import * as subscriptions from "./views/subscriptions.js";

/** A view: its module, its name in the menu, whether it needs a space, and who sees it. */
const VIEWS = {
  feed: { module: feed, name: "Live feed", group: "Space", needsSpace: true },
  subscriptions: { module: subscriptions, name: "Subscriptions", group: "Space", needsSpace: true },
  publish: { module: publish, name: "Publish", group: "Space", needsSpace: true },
  subscribers: { module: subscribers, name: "Subscribers", group: "Delivery" },
  deliveries: { module: deliveries, name: "Deliveries", group: "Delivery" },
  load: { module: load, name: "Load and latency", group: "Operation" },
  spaces: { module: spaces, name: "Spaces", group: "Operation" },
  access: { module: access, name: "Tokens and quotas", group: "Operation", scope: "admin" },
};

const app = document.getElementById("app");
const state = { session: null, spaces: [], space: null, view: "feed" };
let leave = () => {};
let shown = 0;

/** What a view may use: mount(root, context) draws it and may return a function that ends it. */
const context = {
  get session() { return state.session; },
  get space() { return state.space; },
  get spaces() { return state.spaces; },
  may: (scope) => state.session.scopes.includes(scope) || (scope !== "operator" && state.session.scopes.includes("admin")),
  go: (view, space = state.space?.name) => { location.hash = address(view, space); },
  reloadSpaces,
};

const address = (view, space) => `#/${space ? `${encodeURIComponent(space)}/` : "-/"}${view}`;

async function reloadSpaces() {
  state.spaces = await get("spaces");
  if (!state.spaces.some((space) => space.name === state.space?.name)) state.space = null;
}

function readAddress() {
  const [, space, view] = /^#\/([^/]*)\/(\w+)/.exec(location.hash) ?? [];
  const wanted = space && space !== "-" ? decodeURIComponent(space) : localStorage.getItem("space");
  state.space = state.spaces.find((one) => one.name === wanted) ?? state.spaces[0] ?? null;
  state.view = VIEWS[view] ? view : "feed";
  if (state.space) localStorage.setItem("space", state.space.name);
}

function menu() {
  const groups = {};
  for (const [key, view] of Object.entries(VIEWS)) {
    if (view.scope && !context.may(view.scope)) continue;
    const current = key === state.view ? "page" : null;
    const link = h("a", { href: address(key, state.space?.name), "aria-current": current }, icon(key), h("span", null, view.name));
    (groups[view.group] ??= []).push(h("li", null, link));
  }
  return Object.entries(groups).map(([name, links]) => [h("h2", { class: "menu-group" }, name), h("ul", null, links)]);
}

function chooser() {
  if (!state.spaces.length) return null;
  const names = state.spaces.map((space) => [space.name, space.name]);
  const chosen = select(names, { id: "space", value: state.space?.name });
  chosen.addEventListener("change", () => context.go(state.view, chosen.value));
  return h("div", { class: "chooser" }, h("label", { for: "space" }, "Space"), chosen);
}

function shell(main) {
  const panel = h("div", { class: "panel", id: "menu" });
  const opener = h("button", { type: "button", class: "button ghost opener", "aria-expanded": "false", "aria-controls": "menu" }, icon("menu"), h("span", null, "Menu"));
  opener.addEventListener("click", () => {
    const isOpen = panel.classList.toggle("open");
    opener.setAttribute("aria-expanded", String(isOpen));
  });
  const leaveButton = button("Sign out", async () => {
    await signOut();
    begin();
  }, { kind: "ghost", picture: "out" });
  put(
    panel,
    chooser(),
    h("nav", { "aria-label": "Views" }, menu()),
    h("div", { class: "foot" }, themeSwitch(), leaveButton, h("p", { class: "who" }, h("b", null, state.session.name), ` of ${state.session.tenant}`)),
  );
  const brand = h("a", { class: "brand", href: address("feed", state.space?.name) }, h("img", { src: "console/assets/mark.svg", alt: "", width: 28, height: 28 }), h("span", null, "Wherecast"));
  const place = h("span", { class: "place" }, state.space?.name ?? "");
  put(app, h("a", { class: "skip", href: "#main" }, "To the content"), h("div", { class: "shell" }, h("aside", { class: "side" }, h("div", { class: "top" }, brand, place, opener), panel), main));
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
}

async function show() {
  leave();
  leave = () => {};
  readAddress();
  const turn = ++shown;
  const view = VIEWS[state.view];
  const main = h("main", { id: "main", tabindex: "-1" });
  shell(main);
  document.title = `${view.name} · Wherecast`;
  if (view.needsSpace && !state.space) {
    put(main, head("Welcome"), noSpace());
  } else {
    try {
      const end = (await view.module.mount(main, context)) ?? (() => {});
      if (turn === shown) leave = end;
      else end();
    } catch (error) {
      put(main, head(view.name), h("div", { class: "notice bad", role: "alert" }, h("p", null, error.message)));
      if (error.status === undefined) console.error(error);
    }
  }
  main.querySelector("h1")?.focus({ preventScroll: true });
  window.scrollTo(0, 0);
}

function noSpace() {
  const what = "A space is a schema with its subscriptions and its events. Everything else happens in one: make it first, then register a filter, then publish.";
  if (!context.may("admin")) return empty("There is no space yet", `${what} Your token cannot make one; ask an admin.`);
  return empty("Create your first space", what, button("Create a space", () => context.go("spaces"), { kind: "primary", picture: "plus" }));
}

/** A link with #token=... or #once=... signs in; the address forgets it at once. */
async function signInByAddress() {
  const [, kind, token] = /^#(token|once)=([\w-]+)/.exec(location.hash) ?? [];
  if (!token) return null;
  history.replaceState(null, "", location.pathname);
  try {
    return await signIn(token, kind === "once");
  } catch (error) {
    complain(error);
    return null;
  }
}

async function begin() {
  leave();
  leave = () => {};
  state.session = (await signInByAddress()) ?? (await currentSession());
  if (!state.session) {
    document.title = "Sign in · Wherecast";
    signin.mount(app, begin);
    return;
  }
  await reloadSpaces();
  await show();
}

applyTheme();
whenSignedOut(() => state.session && begin());
addEventListener("hashchange", async () => {
  if (/^#(token|once)=/.test(location.hash)) return begin();
  if (state.session) await show();
});
begin().catch(complain);
