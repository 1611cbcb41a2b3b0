"""The page of all commands, written from the commands: `python -m wherecast.cli.page docs/reference/cli.md`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import typer.main

from wherecast.cli.app import app

# Typer has a click of its own, whose classes it does not export.
Command = Any
Parameter = Any

_START = """# Commands

Every command with its arguments and options, as `--help` shows them. `make docs` writes this page.
"""


def write_page() -> str:
    """The page: a section for each command, in the order of `wherecast --help`."""
    parts = [_START]
    for path, command in _commands("wherecast", typer.main.get_command(app)):
        parts += _section(path, command)
    return "\n".join(parts).rstrip() + "\n"


def _commands(path: str, command: Command) -> Iterator[tuple[str, Command]]:
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from _commands(f"{path} {name}", below)


def _section(path: str, command: Command) -> list[str]:
    depth = "##" if path.count(" ") < 2 else "###"
    parts = [f"{depth} {path}", "", *_help_of(command)]
    rows = [_row(param) for param in command.params if not getattr(param, "hidden", False) and param.name != "help"]
    if rows:
        parts += ["| | |", "|---|---|", *rows, ""]
    return parts


def _help_of(command: Command) -> Iterator[str]:
    """What the command says about itself; a paragraph behind a backspace keeps its lines, and may be examples."""
    text = re.sub(r"\[/?(?:bold|dim|italic)\]", "**", command.help or "")
    for paragraph in re.split(r"\n{2,}", text.strip()):
        if not paragraph.startswith("\b"):
            yield from (paragraph, "")
            continue
        lines = paragraph[1:].strip("\n").splitlines()
        is_example = bool(re.fullmatch(r"\s*Examples?:", lines[0]))
        yield from ("```sh" if is_example else "```text", dedent("\n".join(lines[is_example:])), "```", "")


def _row(param: Parameter) -> str:
    metavar = param.metavar or ""
    if param.param_type_name == "argument":
        name = f"`{metavar or (param.name or '').upper()}`"
    else:
        takes = "" if getattr(param, "is_flag", False) else f" {metavar or _type_of(param)}"
        name = ", ".join(f"`{option}{takes}`" for option in [*param.opts, *param.secondary_opts])
    says = getattr(param, "help", None) or ""
    choices = [str(getattr(choice, "value", choice)) for choice in getattr(param.type, "choices", ())]
    says += f" One of {', '.join(choices)}." if choices else ""
    return f"| {name} | {_escaped(says + _default_of(param))} |"


def _type_of(param: Parameter) -> str:
    return str(param.type.name).upper().split(" ")[0]


def _default_of(param: Parameter) -> str:
    if param.param_type_name == "argument" or getattr(param, "is_flag", False):
        return ""
    if param.required:
        return " Required."
    default = getattr(param.default, "value", param.default)
    return "" if default in (None, "", ()) or callable(default) else f" Default: {default}."


def _escaped(text: str) -> str:
    return re.sub(r"\[/?(?:bold|dim|italic)\]", "", text).replace("|", "\\|").replace("<", "&lt;").strip()


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(write_page(), "utf-8")
