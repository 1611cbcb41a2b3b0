"""What the documentation shows works: snippets run, filters compile or are refused, links and paths lead somewhere."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from wherecast import Engine, FilterError, Schema
from wherecast.language.syntax.limits import Limits
from wherecast.language.syntax.sequence import is_sequence

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
    *(page for folder in ("docs", "examples", "deploy") for page in sorted((ROOT / folder).rglob("*.md"))),
]
WITH_CODE = [
    ROOT / "README.md",
    *(page for part in ("guides", "operations", "start") for page in sorted((ROOT / "docs" / part).glob("*.md"))),
]
LANGUAGE = ROOT / "docs" / "language.md"
WALKS = [ROOT / "docs" / "architecture.md", ROOT / "docs" / "design" / "adaptive.md"]
LAYERS = "language|index|engine|matchers|kernels|cli|spark|broker|bench|partition|overlay|papers"
#: Names of files in prose that are not modules of the package.
NO_MODULES = {"utils.py", "misc.py", "helper.py", "first.py", "rules.py", "receiver.py", "data.py", "job.py"}


def name_of(path):
    return str(path.relative_to(ROOT))


def fences(path, kind):
    """The contents of the fenced blocks of a kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


class Step(NamedTuple):
    """A command and, if the page shows it, its output."""

    command: str
    output: str


def steps_of(block):
    """The commands of a console block; a here-document belongs to its command."""
    steps, lines = [], iter(block.splitlines())
    for line in lines:
        if not line.startswith("$ "):
            steps[-1] = steps[-1]._replace(output=steps[-1].output + line + "\n")
            continue
        command = line[2:]
        mark = re.search(r"<<'(\w+)'", command)
        if mark:
            for more in lines:
                command += "\n" + more
                if more == mark[1]:
                    break
        steps.append(Step(command, ""))
    return steps


@pytest.fixture
def shell(tmp_path):
    """Runs commands in an empty folder with this `wherecast` first on PATH."""
    program = tmp_path / "bin" / "wherecast"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "from wherecast.cli import main; main()" "$@"\n')
    program.chmod(0o755)
    place = tmp_path / "place"
    place.mkdir()
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"

    def run(command):
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=place,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    run.place = place
    return run


@pytest.mark.sampled
@pytest.mark.parametrize("path", WITH_CODE, ids=name_of)
def test_python_runs(path, capsys):
    """The Python of a page runs from top to bottom."""
    namespace = {}
    for block in fences(path, "python"):
        exec(compile(block, name_of(path), "exec"), namespace)


def test_readme_prints_what_it_says(capsys):
    """The comments in the README's snippet are what it prints."""
    exec(fences(ROOT / "README.md", "python")[0], {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "['alice']"
    found = sorted(((row["event"], row["subscription"]) for row in eval(lines[1])), key=str)
    assert found == [(0, "bob"), (0, 7), (1, 7)]
    assert lines[2] == "does not match"
    assert lines[-1] == "symbol IN ('IBM', 'SAP') AND volume >= 1000"


@pytest.mark.slow
@pytest.mark.parametrize("path", WITH_CODE, ids=name_of)
def test_commands_run(path, shell):
    """The commands of a page work, and print what the page shows."""
    if path.name == "README.md":  # its commands are about files that the guide makes
        guide = "".join(fences(ROOT / "docs" / "guides" / "getting-started.md", "console"))
        for step in steps_of(guide):
            if step.command.startswith("cat >"):
                shell(step.command)
    for block in fences(path, "console"):
        for command, output in steps_of(block):
            small = " --subscriptions 300 --events 100" if command.startswith("wherecast demo") else ""
            printed = shell(command + small)
            assert not output or sorted(printed.splitlines()) == sorted(output.splitlines())


@pytest.mark.slow
def test_example_of_the_architecture_page(shell):
    """The command of the worked example runs."""
    (shell.place / "schema.json").write_text('{"symbol": "string", "price": "double"}')
    page = (ROOT / "docs" / "architecture.md").read_text()
    (command,) = re.findall(r"^    (wherecast check .*)$", page, re.MULTILINE)
    printed = shell(command)
    assert "symbol = 'IBM' AND price < 120.0" in printed


def test_worked_example_of_codes():
    """The codes and boxes of the worked example are those of the architecture page."""
    from wherecast.index.build import code_filters
    from wherecast.language.events.events import EventBatch
    from wherecast.language.filters.compile import Compiler

    schema = Schema.of({"symbol": "string", "price": "double"})
    filters = Compiler(schema).compile("symbol = 'IBM' AND NOT (price >= 120 OR price IS NULL)")
    index = code_filters(filters, schema)
    assert list(zip(index.boxes.attr.tolist(), index.boxes.lo.tolist(), index.boxes.hi.tolist(), strict=True)) == [
        (0, 2, 2), (1, 1, 1),
    ]  # fmt: skip
    events = EventBatch.read(schema, [{"symbol": "IBM", "price": 119.5}, {"symbol": "A", "price": 120.0}, {}])
    assert index.codebook.encode(events).codes[[0, 2]].tolist() == [[2, 1], [0, 0]]
    twin = Compiler(schema).compile("price < 120 AND symbol IN ('IBM')")
    assert twin.digests == filters.digests


@pytest.fixture(scope="module")
def engine():
    return Engine(json.loads(fences(LANGUAGE, "json")[0]))


@pytest.mark.parametrize("text", [line for block in fences(LANGUAGE, "sql") for line in block.splitlines()])
def test_language_examples_compile(engine, text):
    """Every example of the language reference is accepted."""
    engine.subscribe(text, text)


@pytest.mark.sampled
@pytest.mark.parametrize("text", [line for block in fences(LANGUAGE, "sql") for line in block.splitlines()])
def test_normal_form_is_the_same_filter(engine, text):
    """What `wherecast check` prints as the normal form compiles to the very filter it describes."""
    from wherecast.cli.check import inspect_filter
    from wherecast.language.filters.compile import Compiler

    if is_sequence(text):  # has no normal form; those of its steps are shown
        return
    compiler = Compiler(engine.schema)
    assert compiler.compile(inspect_filter(text, engine.schema).sql).digests == compiler.compile(text).digests


@pytest.mark.parametrize("text", [line for block in fences(LANGUAGE, "sql refused") for line in block.splitlines()])
def test_language_refuses(engine, text):
    """Every example of what is refused is refused."""
    with pytest.raises(FilterError):
        engine.subscribe(text, text)


LANGUAGE_FACTS = [
    ("NOT (price > 5)", {}, False),
    ("symbol NOT IN ('a', NULL)", {"symbol": "b"}, False),
    ("price > 5", {"price": float("nan")}, True),
    ("price > 1.7976931348623157e308", {"price": float("inf")}, True),
    ("price > 1.7976931348623157e308", {"price": float("nan")}, True),
    ("price = 0.0", {"price": -0.0}, True),
    ("price = 0.1", {"price": 0.1}, True),
    ("volume < 2.5", {"volume": 2}, True),
    ("volume / 2 = 2.5", {"volume": 5}, True),
    ("symbol < 'a'", {"symbol": "B"}, True),
    ("symbol IS NULL", {"symbol": ""}, False),
    ("(volume / 0) IS NULL", {"volume": 1}, True),
    ("(volume + 9223372036854775807) IS NULL", {"volume": 1}, True),
    ("volume * 1.1 = 3.3", {"volume": 3}, True),
    ("volume * 1.1D = 3.3D", {"volume": 3}, False),
    ("upper(symbol) = 'STRASSE'", {"symbol": "straße"}, True),
    ("NOT array_contains(tags, 'x')", {"tags": ["y", None]}, False),
    ("size(tags) IS NULL", {}, True),
    ("PRICE > 1", {"price": 2.0}, True),
    ("time = '2024-01-31'", {"time": "2024-01-31T00:00:00Z"}, True),
]


@pytest.mark.parametrize(("text", "event", "answer"), LANGUAGE_FACTS, ids=[fact[0] for fact in LANGUAGE_FACTS])
def test_language_facts(text, event, answer):
    """What the reference says about values is so."""
    engine = Engine(json.loads(fences(LANGUAGE, "json")[0]))
    engine.subscribe("s", text)
    assert (engine.match(event) == ["s"]) is answer


def test_limits_are_those_documented():
    """The table of limits has the defaults."""
    page = LANGUAGE.read_text()
    for value in (Limits().text, Limits().depth, Limits().terms, Limits().values, Limits().pattern, Limits().clauses):
        assert f"| {value:,} |" in page
    for reason in FilterError.REASONS:
        assert f"| `{reason}` |" in page


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_links_lead_somewhere(path):
    """Relative links and paths of modules exist; addresses are whole ones of the web. MkDocs checks the anchors."""
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        is_address = re.fullmatch(r"https://([\w-]+\.)+[a-z]{2,}(/[\w./~%?=&+-]*)?", target)
        assert is_address or (path.parent / target).exists(), target
    assert "--8 <" not in text, "a formatter has taken the line that includes a file for Python"
    if path.parent.name == "decisions":  # they also speak of what was there before
        return
    for module in re.findall(rf"`((?:{LAYERS})/(?:\w+/)*\w*(?:\.py)?|errors\.py)`", text):
        assert (ROOT / "src" / "wherecast" / module).exists(), module
    for module in re.findall(r"`(\w+\.py)`", text):
        found = [*(ROOT / "src" / "wherecast").rglob(module), *(ROOT / "tests").rglob(module)]
        assert module in NO_MODULES or found, module


@pytest.mark.slow
@pytest.mark.parametrize("path", WALKS, ids=name_of)
def test_walks_name_what_is_there(path):
    """Each function and class that a walk through the code names is defined in the module that stands behind it."""
    steps = re.findall(r"`([\w.]+)` \(`([\w/]+\.py)`", path.read_text(encoding="utf-8"))
    assert len(steps) > 5
    for name, module in steps:
        names = defined_in(ROOT / "src" / "wherecast" / module)
        assert name in names, f"{name} is not in {module}"


def defined_in(path):
    """Classes, functions, methods (`Class.method`) and constants of a module."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            found.add(node.name)
            found |= {
                f"{node.name}.{part.name}"
                for part in node.body
                if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)
            }
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    return found


def names_a_module(folder: Path, parts: list[str]) -> bool:
    """Whether the dotted name leads from the folder to a module; a name inside the module may follow."""
    while parts and (folder / parts[0]).is_dir():
        folder, parts = folder / parts[0], parts[1:]
    return bool(parts) and (folder / f"{parts[0]}.py").exists()


def test_docstrings_name_modules_that_are_there():
    """A module that the source names as `layer.room.module` exists, in the package or beside the paper that names it."""
    root = ROOT / "src" / "wherecast"
    named = re.compile(r"`((?:language|index|matchers|kernels)\.[\w.]+)`")
    missing = [
        f"{path.relative_to(root)}: {name}"
        for path in sorted(root.rglob("*.py"))
        for name in named.findall(path.read_text("utf-8"))
        if not any(names_a_module(above, name.split(".")) for above in path.parents if above.is_relative_to(root))
    ]
    assert not missing


def test_docstring_of_the_package():
    """The example in the package's docstring works."""
    import doctest

    import wherecast

    assert doctest.testmod(wherecast).failed == 0


def test_public_names():
    """Every public name can be fetched, and no other."""
    import wherecast

    for name in wherecast.__all__:
        assert getattr(wherecast, name).__name__ == name
        assert name in dir(wherecast)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = wherecast.nonsense


def test_public_names_are_on_the_page():
    """The page of the Python API has every public name of the package; those of Spark and the errors come from their modules."""
    import wherecast
    import wherecast.errors

    page = (ROOT / "docs" / "reference" / "api.md").read_text("utf-8")
    named = set(re.findall(r"^::: wherecast\.(\w+)$", page, re.MULTILINE))
    errors = {name for name in wherecast.__all__ if hasattr(wherecast.errors, name)}
    assert named - {"errors", "spark"} == set(wherecast.__all__) - errors


def test_page_of_commands_is_current():
    """`make docs` would change nothing on the page of commands."""
    from wherecast.cli.page import write_page

    assert (ROOT / "docs" / "reference" / "cli.md").read_text("utf-8") == write_page()


def test_pictures_are_current(monkeypatch):
    """`make docs` would change none of the pictures of the architecture page and of the home page."""
    monkeypatch.syspath_prepend(ROOT / "docs" / "assets")
    from architecture import PICTURES
    from picture import COLOURS, draw

    for theme, colours in COLOURS.items():
        for name, make in {**PICTURES, "flow": draw}.items():
            stored = (ROOT / "docs" / "assets" / f"{name}-{theme}.svg").read_text("utf-8")
            assert stored.strip() == make(colours).strip(), name


def test_configuration_of_the_spark_guide(tmp_path):
    """The pipeline that the guide shows is a valid one."""
    from wherecast.spark.config import read_config

    (block,) = fences(ROOT / "docs" / "guides" / "spark.md", "toml")
    (tmp_path / "pipeline.toml").write_text(block)
    assert read_config(tmp_path / "pipeline.toml").events.per_trigger == 100_000
