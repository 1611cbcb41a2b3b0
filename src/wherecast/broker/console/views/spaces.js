// Spaces: those there are, and making one: a name and the attributes of its events.

import { call, post, at } from "../api.js";
import { h, icon, put } from "../dom.js";
import { button, card, confirm, field, head, input, number, select, toast } from "../ui.js";

const TYPES = ["string", "double", "bigint", "integer", "boolean", "timestamp", "date", "decimal(18,4)", "array<string>", "map<string,string>"];
const EXAMPLES = {
  "Stock quotes": ["quotes", { symbol: "string", price: "double", change: "double", volume: "bigint" }],
  "Server logs": ["logs", { host: "string", level: "string", message: "string", status: "integer", milliseconds: "double" }],
  Sensors: ["sensors", { device: "string", site: "string", celsius: "double", battery: "double", at: "timestamp" }],
};

export function mount(root, context) {
  const list = context.spaces.length ? h("ul", { class: "tiles" }, context.spaces.map((space) => tile(space, context))) : null;
  const intro = context.spaces.length
    ? "A space is a schema with its subscriptions and its events."
    : "Start here: a space is a schema with its subscriptions and its events. Take an example and change it, or write your own.";
  put(root, head("Spaces", intro), list, context.may("admin") ? maker(context) : null);
}

function tile(space, context) {
  const names = Object.entries(space.schema).map(([name, type]) => h("li", null, h("b", null, name), ` ${typeName(type)}`));
  const remove = button("Delete", async () => {
    const text = `Its ${number(space.subscriptions)} subscriptions and all its events are deleted. This cannot be undone.`;
    if (!(await confirm(`Delete the space ${space.name}?`, text, "Delete"))) return;
    await call("DELETE", at`spaces/${space.name}`);
    await context.reloadSpaces();
    toast(`The space ${space.name} is deleted`);
    context.go("feed", context.spaces[0]?.name);
  }, { kind: "ghost", label: `Delete the space ${space.name}` });
  return h(
    "li",
    { class: "card" },
    h("h2", null, space.name),
    h("p", { class: "hint" }, `${number(space.subscriptions)} subscriptions, ${number(space.next_position - space.earliest_position)} events kept`),
    h("ul", { class: "attributes" }, names),
    h("div", { class: "actions" }, button("Open", () => context.go("feed", space.name), { kind: "primary", label: `Open the space ${space.name}` }), context.may("admin") ? remove : null),
  );
}

export const typeName = (type) => (typeof type === "string" ? type : (type.type ?? JSON.stringify(type)));

function maker(context) {
  const name = input({ name: "space", required: true, pattern: "[A-Za-z0-9][A-Za-z0-9._\\-]{0,63}", placeholder: "quotes" });
  const rows = h("ul", { class: "attribute-rows" });
  const wrong = h("p", { class: "error", role: "alert" });
  const add = (attribute = "", type = "string") => rows.append(attributeRow(attribute, type, rows));
  const take = ([space, schema]) => {
    name.value = space;
    rows.replaceChildren();
    Object.entries(schema).forEach(([attribute, type]) => add(attribute, type));
  };
  const form = h(
    "form",
    null,
    h("div", { class: "actions", role: "group", "aria-label": "Examples" }, Object.entries(EXAMPLES).map(([title, example]) => button(title, () => take(example), { kind: "small" }))),
    field("Name of the space", name, "Letters, digits, dot, dash and underscore."),
    h("fieldset", null, h("legend", null, "Attributes of an event"), rows, button("Add an attribute", () => add(), { picture: "plus", kind: "small" })),
    wrong,
    button("Create the space", null, { kind: "primary", type: "submit" }),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const schema = Object.fromEntries([...rows.children].map((row) => [row.querySelector("input").value.trim(), row.querySelector("select").value]).filter(([key]) => key));
    try {
      await post("spaces", { name: name.value.trim(), schema });
      await context.reloadSpaces();
      toast(`The space ${name.value.trim()} is ready. Register a filter next.`);
      context.go("subscriptions", name.value.trim());
    } catch (error) {
      put(wrong, error.message);
    }
  });
  take(EXAMPLES["Stock quotes"]);
  return card("Create a space", form);
}

function attributeRow(attribute, type, rows) {
  const row = h("li", null);
  const name = input({ "aria-label": "Name of the attribute", value: attribute });
  const kinds = select((TYPES.includes(type) ? TYPES : [type, ...TYPES]).map((one) => [one, one]), { "aria-label": "Type of the attribute", value: type });
  const remove = h("button", { type: "button", class: "button ghost square", "aria-label": "Remove the attribute", onclick: () => row.remove() }, icon("cross"));
  return put(row, name, kinds, remove);
}
