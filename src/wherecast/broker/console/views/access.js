// Tokens of the tenant and its quotas; for operators all tenants.

import { call, get, post, at } from "../api.js";
import { h, put } from "../dom.js";
import { badge, button, card, confirm, empty, field, head, input, moment, number, secretNote, select, toast } from "../ui.js";

const SCOPES = [["read", "look at everything, follow feeds"], ["subscribe", "change subscriptions and subscribers"], ["publish", "publish events"], ["admin", "all of these, spaces and tokens"], ["operator", "tenants and quotas"]];
const LIFETIMES = [["", "does not expire"], ["1", "1 day"], ["30", "30 days"], ["365", "1 year"]];

export async function mount(root, context) {
  if (!context.may("admin")) {
    put(root, head("Tokens and quotas"), empty("For admins", "Your token does not have the scope admin."));
    return;
  }
  const tokens = h("ul", { class: "rows", "aria-label": "Tokens" });
  const told = h("div", null);
  const load = async () => {
    const found = await get("tokens");
    put(tokens, found.map((token) => tokenRow(token, context, told, load)));
  };
  const parts = [told, tokens, card("New token", tokenForm(context, told, load)), quotaCard(await get("quotas"))];
  if (context.may("operator")) parts.push(card("Tenants", tenants(await get("tenants"))));
  put(root, head("Tokens and quotas", `Who may do what in the tenant ${context.session.tenant}, and how much it may have.`), parts);
  await load();
}

function tokenRow(token, context, told, load) {
  const isSession = token.token_id.includes(".");
  const isMine = token.token_id === context.session.token_id;
  const rotate = button("Rotate", async () => {
    const made = await post(at`tokens/${token.token_id}/rotate`);
    put(told, secretNote(`The token in place of ${token.name}. The old one still works for a day.`, made.secret));
    await load();
  }, { kind: "small", label: `Rotate ${token.name}` });
  const remove = button(isSession ? "End" : "Remove", async () => {
    const text = isSession ? "Whoever uses it must sign in again." : "Programs that use it and sessions begun with it stop working at once.";
    if (!(await confirm(isSession ? "End this session?" : `Remove the token ${token.name}?`, text, isSession ? "End" : "Remove"))) return;
    await call("DELETE", at`tokens/${token.token_id}`);
    toast(isSession ? "The session is over" : `The token ${token.name} is removed`);
    await load();
  }, { kind: "small", label: `${isSession ? "End the session" : "Remove"} ${token.name}` });
  return h(
    "li",
    { class: "row" },
    h("div", { class: "row-head" }, h("h2", null, token.name), isSession ? badge(isMine ? "this session" : "session", "info") : null, token.scopes.map((scope) => h("span", { class: "tag" }, scope))),
    h("div", { class: "row-foot" }, h("span", { class: "hint" }, token.token_id, ", made ", moment(token.created_at), token.expires_at ? [", until ", moment(token.expires_at)] : null), h("div", { class: "actions" }, isSession ? null : rotate, isMine ? null : remove)),
  );
}

function tokenForm(context, told, load) {
  const name = input({ name: "name", required: true, maxlength: 200, placeholder: "feed reader" });
  const life = select(LIFETIMES, { name: "life", value: "" });
  const offered = SCOPES.filter(([scope]) => scope !== "operator" || context.may("operator"));
  const boxes = offered.map(([scope, meaning]) => h("label", { class: "check" }, h("input", { type: "checkbox", value: scope, checked: scope === "read" }), h("span", null, h("b", null, scope), ` ${meaning}`)));
  const form = h("form", null, h("div", { class: "grid" }, field("Name", name), field("Lifetime", life)), h("fieldset", null, h("legend", null, "Scopes"), boxes), button("Make the token", null, { kind: "primary", type: "submit" }));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const scopes = [...form.querySelectorAll("input:checked")].map((box) => box.value);
    const expires = life.value ? new Date(Date.now() + Number(life.value) * 86400000).toISOString() : null;
    try {
      const made = await post("tokens", { name: name.value.trim(), scopes, expires_at: expires });
      put(told, secretNote(`The token ${made.name}.`, made.secret));
      form.reset();
      await load();
    } catch (error) {
      toast(error.message, "bad");
    }
  });
  return form;
}

const QUOTAS = ["subscriptions", "clauses", "feeds", "spaces"];

function quotaCard({ quotas, used }) {
  const line = (name) => {
    const meter = h("meter", { min: 0, max: Math.max(1, quotas[name]), value: used[name] ?? 0, "aria-label": `${name} used` });
    return h("li", null, h("span", null, name), meter, h("span", { class: "hint" }, `${number(used[name] ?? 0)} of ${number(quotas[name])}`));
  };
  return card("Quotas", h("ul", { class: "quotas" }, QUOTAS.map(line)));
}

function tenants(found) {
  return h("ul", { class: "rows" }, found.map(({ tenant, quotas }) => {
    const inputs = Object.fromEntries(QUOTAS.map((name) => [name, input({ type: "number", min: 0, value: quotas[name] })]));
    const save = button("Save", async () => {
      const chosen = Object.fromEntries(QUOTAS.map((name) => [name, Number(inputs[name].value)]));
      await call("PUT", at`tenants/${tenant}/quotas`, { ...quotas, ...chosen });
      toast(`The quotas of ${tenant} are set`);
    }, { kind: "small", label: `Save the quotas of ${tenant}` });
    return h("li", { class: "row" }, h("div", { class: "row-head" }, h("h2", null, tenant)), h("div", { class: "grid" }, QUOTAS.map((name) => field(name, inputs[name]))), h("div", { class: "actions" }, save));
  }));
}
