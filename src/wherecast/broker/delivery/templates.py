"""Templates for titles and texts: a small part of Jinja, in its sandbox, with limits.

Theory of operation. Subscribers write templates, so a template must neither reach anything nor cost much. The sandbox sees to the
first. For the second, Jinja has no limit, and a template that loops without output cannot be stopped from outside. So only
what is bounded is let in: no calls, no macros, no loops inside loops, no operator that makes long texts out of short ones, and
filters from a list. What a template sees has short texts and shared lists that end after some thousand steps.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from jinja2 import ChainableUndefined, Template, TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from wherecast.broker.problems import Problem

#: Characters of a template, of what it writes, and of a text that it sees; steps of its loops; seconds.
LONGEST_TEMPLATE, _LONGEST_RESULT, _LONGEST_VALUE, _STEPS, _SECONDS = 4_096, 16_384, 2_000, 2_000, 0.2

_NODES = (
    nodes.Template,
    nodes.Output,
    nodes.TemplateData,
    nodes.Name,
    nodes.Const,
    nodes.Getattr,
    nodes.Getitem,
    nodes.If,
    nodes.For,
    nodes.CondExpr,
    nodes.Filter,
    nodes.Test,
    nodes.Compare,
    nodes.Operand,
    nodes.And,
    nodes.Or,
    nodes.Not,
    nodes.Add,
    nodes.Sub,
    nodes.Mul,
    nodes.Div,
    nodes.FloorDiv,
    nodes.Neg,
    nodes.Pos,
)
_FILTERS = ("upper", "lower", "title", "capitalize", "trim", "int", "float", "default", "d", "abs", "length", "first", "last", "string", "tojson", "truncate")  # fmt: skip
_TESTS = ("defined", "undefined", "none", "number", "string", "odd", "even", "in", "eq", "ne", "lt", "gt", "le", "ge")


def _round(value: Any, digits: int = 0) -> Any:
    """Jinja's own computes a power of ten of any size."""
    return round(float(value), min(max(int(digits), 0), 15))


class _Sandbox(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset(["+", "*"])

    def __init__(self) -> None:
        super().__init__(undefined=ChainableUndefined, autoescape=False)
        self.globals.clear()
        self.filters = {name: self.filters[name] for name in _FILTERS} | {"round": _round}
        self.tests = {name: self.tests[name] for name in _TESTS}

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Only numbers are added and multiplied: a text that doubles in each step is long soon."""
        if not all(isinstance(value, int | float) and abs(value) < 1e100 for value in (left, right)):
            raise SecurityError(f"{operator!r} is for numbers")
        return super().call_binop(context, operator, left, right)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:  # noqa: ARG002
        """Only items of mappings, and of loops their numbers."""
        return type(obj).__name__ == "LoopContext" and attr in ("index", "index0", "first", "last", "length")


_SANDBOX = _Sandbox()


def check_template(text: str) -> None:
    """Raise a problem if a template cannot be used."""
    try:
        _compile(text)
    except (TemplateError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        raise Problem(422, "template", f"the template cannot be used: {error}", {"line": line}) from None


@lru_cache(512)
def _compile(text: str) -> Template:
    if len(text) > LONGEST_TEMPLATE:
        raise SecurityError(f"a template has at most {LONGEST_TEMPLATE:,} characters")
    tree = _SANDBOX.parse(text)
    _check(tree, in_loop=False)
    return _SANDBOX.from_string(tree)


def _check(node: nodes.Node, *, in_loop: bool) -> None:
    if not isinstance(node, _NODES):
        raise SecurityError(f"{type(node).__name__.lower()} is not allowed in line {node.lineno}")
    if isinstance(node, nodes.Getattr) and node.attr.startswith("_"):
        raise SecurityError(f"{node.attr!r} is not an attribute of an event in line {node.lineno}")
    if isinstance(node, nodes.For):
        if in_loop or node.recursive:
            raise SecurityError(f"a loop inside a loop is not allowed in line {node.lineno}")
        in_loop = True
    for child in node.iter_child_nodes():
        _check(child, in_loop=in_loop)


class _Steps:
    """How many steps the loops of one template may still make."""

    def __init__(self) -> None:
        self.left = _STEPS


class _Items(list[Any]):
    """A list of an event; looping over it uses up steps."""

    def __init__(self, items: list[Any], steps: _Steps) -> None:
        super().__init__(items)
        self._steps = steps

    def __iter__(self) -> Iterator[Any]:
        for item in super().__iter__():
            self._steps.left -= 1
            if self._steps.left < 0:
                raise SecurityError(f"loops make at most {_STEPS:,} steps")
            yield item


def _prepared(value: Any, steps: _Steps) -> Any:
    if isinstance(value, dict):
        return {name: _prepared(one, steps) for name, one in list(value.items())[:_STEPS]}
    if isinstance(value, list):
        return _Items([_prepared(one, steps) for one in value[: _STEPS + 1]], steps)
    if isinstance(value, str) and len(value) > _LONGEST_VALUE:
        return value[:_LONGEST_VALUE] + "…"
    return value


def render(text: str, values: dict[str, Any]) -> str:
    """What a template writes, cut where it becomes too long. Raises TemplateError, or anything that wrong types raise."""
    deadline = time.monotonic() + _SECONDS
    parts, size = [], 0
    for part in _compile(text).generate(_prepared(values, _Steps())):
        parts.append(part[:_LONGEST_RESULT])
        size += len(part)
        if size > _LONGEST_RESULT or time.monotonic() > deadline:
            parts.append("…")
            break
    return "".join(parts)[: _LONGEST_RESULT + 1]
