// Subscribers: whom to tell and how. Each has routes in order of preference; each can be tested, muted and snoozed.

import { call, get, post, at } from "../api.js";
import { h, icon, put } from "../dom.js";
import { badge, button, complain, confirm, debounced, empty, field, head, input, moment, secretNote, select, toast } from "../ui.js";

const KINDS = [["webhook", "webhook"], ["email", "e-mail"], ["chat", "chat"], ["file", "file"], ["feed", "feed"]];
const TARGETS = { webhook: "https://example.org/hook", email: "ann@example.org", chat: "an Apprise URL: slack://…", file: "alerts.jsonl", feed: "whoever is connected" };
const PAGE = 50;

export async function mount(root, context) {
  const mayChange = context.may("subscribe");
  const text = input({ type: "search", name: "text", placeholder: "part of a name" });
  const list = h("ul", { class: "rows", "aria-label": "Subscribers" });
  const more = h("div", { class: "more" });
  const place = h("div", null);

  let turn = 0; // an answer that was overtaken by a later question is not shown
  async function load(after = "") {
    const mine = ++turn;
    const page = await get("subscribers", { limit: PAGE, after, text: text.value.trim() });
    if (mine !== turn) return;
    if (!after) put(list);
    list.append(...page.subscribers.map(row));
    put(more, page.next ? button("Show more", () => load(page.next)) : null);
    if (!list.children.length) list.append(h("li", { class: "bare" }, nothing()));
  }

  function nothing() {
    if (text.value) return empty("Nobody found", "No subscriber has this in their name.");
    const what = "A subscriber is told by the first of their routes that works: a webhook, e-mail, chat, a file. Use the name that their subscriptions carry.";
    return empty("Add the first subscriber", what, mayChange ? button("New subscriber", () => edit(null), { kind: "primary", picture: "plus" }) : null);
  }

  function edit(subscriber) {
    put(place, form(subscriber, async (secrets) => {
      put(place, secrets);
      await load();
    }, () => put(place)));
    place.querySelector("input:not(:disabled)").focus();
    place.scrollIntoView({ block: "nearest" });
  }

  function row(subscriber) {
    const item = h("li", { class: "row" });
    const path = at`subscribers/${subscriber.name}`;
    const outcome = h("div", { class: "detail", role: "status" });
    const refresh = async () => item.replaceWith(row(await get(path)));
    const act = (word, body, done) => async () => {
      const changed = await post(`${path}/${word}`, body);
      toast(`${subscriber.name} is ${done}`);
      item.replaceWith(row(changed));
    };
    const name = (word) => ({ kind: "small", label: `${word} ${subscriber.name}` });
    const test = (route) => async () => {
      put(outcome, h("p", { class: "hint" }, "Sending…"));
      const answer = await post(`${path}/test`, { route });
      put(outcome, tested(answer));
    };
    const remove = button("Delete", async () => {
      if (!(await confirm(`Delete ${subscriber.name}?`, "Their routes are forgotten. Their subscriptions stay.", "Delete"))) return;
      await call("DELETE", path);
      toast(`${subscriber.name} is deleted`);
      await load();
    }, name("Delete"));
    const isSnoozed = subscriber.snoozed_until && new Date(subscriber.snoozed_until) > new Date();
    const tools = mayChange ? [
      button("Test", test(null), name("Test")),
      subscriber.muted ? button("Unmute", act("unmute", undefined, "told again"), name("Unmute")) : button("Mute", act("mute", undefined, "muted"), name("Mute")),
      isSnoozed ? button("Wake", act("snooze", { minutes: 0 }, "told again"), name("Wake")) : button("Snooze 1 h", act("snooze", { minutes: 60 }, "snoozed for an hour"), name("Snooze for an hour:")),
      button("Edit", () => edit(subscriber), name("Edit")),
      remove,
    ] : [];
    return put(
      item,
      h("div", { class: "row-head" }, h("h2", null, subscriber.name), subscriber.muted ? badge("muted") : null, isSnoozed ? badge("snoozed") : null, h("span", { class: "hint" }, facts(subscriber))),
      h("ol", { class: "routes", "aria-label": `Routes of ${subscriber.name}` }, subscriber.routes.map((route) => routeLine(route, path, mayChange, subscriber.routes.length > 1 ? test : null, refresh, (note) => put(outcome, note)))),
      h("div", { class: "row-foot" }, h("span", { class: "hint" }, isSnoozed ? ["snoozed until ", moment(subscriber.snoozed_until)] : null), h("div", { class: "actions" }, tools)),
      outcome,
    );
  }

  text.addEventListener("input", debounced(250, () => load()));
  put(
    root,
    head("Subscribers", "Who is told, and by which route. The first that works is taken.", mayChange ? button("New subscriber", () => edit(null), { kind: "primary", picture: "plus" }) : null),
    place,
    h("div", { class: "bar" }, field("Find", text)),
    list,
    more,
  );
  await load();
}

function facts(subscriber) {
  const quiet = subscriber.quiet_hours.map((one) => `quiet ${one.from}–${one.to}`);
  const digest = subscriber.digest_minutes ? [`digest every ${subscriber.digest_minutes} min`] : [];
  return [subscriber.time_zone, ...quiet, ...digest, ...(subscriber.ordered ? ["in order"] : [])].join(" · ");
}

function routeLine(route, path, mayChange, test, refresh, tell) {
  const act = (word, done) => async () => {
    const answer = await post(`${path}/routes/${encodeURIComponent(route.route)}/${word}`);
    if (answer.state === "active") toast(done);
    else toast(answer.reason ?? `The route is ${answer.state}`, "bad");
    await refresh();
  };
  const name = (word) => ({ kind: "small ghost", label: `${word} route ${route.route}` });
  const tools = mayChange ? [
    test ? button("Test", test(route.route), name("Test")) : null,
    route.state === "unverified" ? button("Verify", act("verify", "The receiver agrees: the route is active"), name("Verify")) : null,
    route.state === "disabled" ? button("Enable", act("enable", "The route is on again"), name("Enable")) : null,
    route.kind === "webhook" ? button("New secret", async () => {
      const answer = await post(`${path}/routes/${encodeURIComponent(route.route)}/rotate`);
      tell(secretNote("The new secret of this route; the old one signs as well for a day.", answer.secret));
    }, name("New secret for")) : null,
  ] : null;
  return h("li", null, h("span", { class: "kind" }, route.kind), h("code", { class: "target" }, route.target ?? ""), badge(route.state), route.reason ? h("span", { class: "hint" }, route.reason) : null, h("span", { class: "actions" }, tools));
}

function tested(answer) {
  if (answer.delivered) return h("p", { class: "ok" }, `Delivered by ${answer.route} in ${Math.round(answer.milliseconds)} ms.`);
  return h("p", { class: "error" }, `Not delivered${answer.route ? ` by ${answer.route}` : ""}: ${answer.reason}`);
}

// -- the form -----------------------------------------------------------------------------------------------------------

function form(subscriber, saved, cancel) {
  const name = input({ name: "name", required: true, value: subscriber?.name ?? "", disabled: Boolean(subscriber), maxlength: 200 });
  const zone = input({ name: "zone", value: subscriber?.time_zone ?? Intl.DateTimeFormat().resolvedOptions().timeZone ?? "UTC" });
  const quiet = subscriber?.quiet_hours[0];
  const from = input({ type: "time", name: "from", value: quiet?.from ?? "" });
  const to = input({ type: "time", name: "to", value: quiet?.to ?? "" });
  const digest = input({ type: "number", min: 1, name: "digest", value: subscriber?.digest_minutes ?? "", placeholder: "at once" });
  const ordered = h("input", { type: "checkbox", name: "ordered", checked: subscriber?.ordered ?? false });
  const routes = h("ul", { class: "attribute-rows route-rows" });
  const add = (route) => routes.append(routeRow(route));
  (subscriber?.routes ?? [{ kind: "webhook", target: "" }]).forEach(add);
  const wrong = h("p", { class: "error", role: "alert" });
  const save = button("Save", null, { kind: "primary", type: "submit" });
  const made = h(
    "form",
    { class: "card" },
    h("h2", null, subscriber ? `Edit ${subscriber.name}` : "New subscriber"),
    h("div", { class: "grid" }, field("Name", name), field("Time zone", zone), field("Digest, minutes", digest), field("Quiet from", from), field("Quiet to", to)),
    h("label", { class: "check" }, ordered, " Keep the order: nothing is sent while an earlier one waits"),
    h("fieldset", null, h("legend", null, "Routes, in order of preference"), routes, button("Add a route", () => add({ kind: "email", target: "" }), { kind: "small", picture: "plus" })),
    wrong,
    h("div", { class: "actions" }, save, button("Cancel", cancel)),
  );
  made.addEventListener("submit", async (event) => {
    event.preventDefault();
    const others = subscriber?.quiet_hours.slice(1) ?? [];
    const hours = from.value && to.value ? [{ ...(quiet ?? {}), from: from.value, to: to.value }, ...others] : others;
    const body = {
      time_zone: zone.value.trim(), quiet_hours: hours, digest_minutes: digest.value ? Number(digest.value) : null, ordered: ordered.checked,
      muted: subscriber?.muted ?? false, snoozed_until: subscriber?.snoozed_until ?? null, title: subscriber?.title ?? null, text: subscriber?.text ?? null, routes: [...routes.children].map((row) => row.read()),
    };
    save.disabled = true;
    try {
      const answer = await call("PUT", at`subscribers/${name.value.trim()}`, body);
      toast(`${answer.name} is saved`);
      const secrets = answer.routes.filter((route) => route.secret);
      await saved(secrets.map((route) => secretNote(`The secret of ${route.kind} ${route.target}, for checking signatures.`, route.secret)));
    } catch (error) {
      if (error.problem) put(wrong, error.message);
      else complain(error);
    } finally {
      save.disabled = false;
    }
  });
  return made;
}

function routeRow(route) {
  const item = h("li", null);
  const kind = select(KINDS, { "aria-label": "Kind of route", value: route.kind });
  const target = input({ "aria-label": "Where to", value: route.target ?? "", placeholder: TARGETS[route.kind] });
  const fit = () => {
    target.placeholder = TARGETS[kind.value];
    target.disabled = kind.value === "feed"; // it goes to whoever is connected
  };
  kind.addEventListener("change", fit);
  fit();
  const remove = h("button", { type: "button", class: "button ghost square", "aria-label": "Remove the route", onclick: () => item.remove() }, icon("cross"));
  item.read = () => ({ ...(route.route ? { route: route.route } : {}), kind: kind.value, target: kind.value === "feed" ? "" : target.value.trim() });
  return put(item, kind, target, remove);
}
