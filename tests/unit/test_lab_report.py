"""Reports of the lab: the table of rows, the page, and the sections of the documentation, from results of no experiment."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.lab_toy import Settings, register, run, toy  # noqa: F401

from wherecast.papers.lab.experiment import LabError
from wherecast.papers.lab.report.entries import PAPERS, ReportEntry, draw_svg, gather, show_cell, summarize
from wherecast.papers.lab.report.page import render_page
from wherecast.papers.lab.report.sections import BEGIN, END, render_section, replace_section, write_sections
from wherecast.papers.lab.results import Results, RunRecord
from wherecast.papers.lab.rows import numbers
from wherecast.papers.lab.runner import run_experiment


def silent(_):
    """Progress that nobody watches."""


@pytest.fixture(scope="module")
def entry():
    """What a run of the toy left, with nothing in it that changes from run to run; its figures take a while to draw."""
    experiment = toy("toy-one")
    rows = run(Settings(), silent)
    machine = {
        "cpu": "Z80",
        "cores": 2,
        "memory_gib": None,
        "system": "CP/M",
        "python": "3.11.9",
        "packages": {"numpy": "2.0"},
    }
    settings = {"limits": "10, 1,000", "seeds": "3"}
    record = RunRecord("toy-one", "paper", "f", settings, 130.0, "2026-02-03T04:05:06+00:00", machine)
    figures = [(drawing, draw_svg(drawing, rows)) for drawing in experiment.drawings]
    return ReportEntry(experiment, record, rows, experiment.judge(rows), figures, outdated=False)


SECTION = """<!-- lab:begin -->

## The lab's figures

Measured at scale `paper`, 2026-02-03, on 2 cores of Z80, Python 3.11.9. 1 of 2 claims hold. Written by \
`wherecast lab report --docs`; [the guide](../guides/lab.md) says how to run it again.

### Table 1: toy-one

![Table 1: toy-one](figures/toy-one.svg)

![More of it](figures/toy-one-more.svg)

| claim | paper | ours | holds |
| --- | --- | --- | --- |
| Visits are few. | &lt; 2,000 | 1,000 | yes |
| Time \\| is 1. | 1 ms | a &lt;b> \\| c | **no** |

Why not:

- Time | is 1. It is not.

`toy-one`, 2 min: limits 10, 1,000; seeds 3.

<details><summary>Measured: medians over 3 seeds</summary>

| limit | kind | visits | ms |
| --- | --- | --- | --- |
| 10 | sum | 10 | 2.86 |
| 1,000 | sum | 1,000 | 286 |

</details>

<!-- lab:end -->"""


@pytest.mark.slow
def test_a_section_is_this_text(entry):
    """Claims beside ours, reasons, settings, counts beside times; cells cannot break the table."""
    assert render_section([entry], "paper") == SECTION


def test_sections_are_written_where_the_marks_are(entry, tmp_path):
    """Text around them stays; a second time changes nothing, byte for byte; figures are beside the pages."""
    page = tmp_path / "topss.md"
    page.write_text(f"# Mine\n\nBefore.\n\n{BEGIN}\nold\n{END}\n\nAfter.\n")
    assert write_sections([entry], "paper", tmp_path) == [page]
    assert page.read_text() == f"# Mine\n\nBefore.\n\n{SECTION}\n\nAfter.\n"
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
    assert {path.name for path in before} == {"topss.md", "toy-one.svg", "toy-one-more.svg"}
    write_sections([entry], "paper", tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*")} == before


def test_a_page_without_marks_gets_the_section_at_its_end(entry, tmp_path):
    """A page that is not there is begun."""
    (tmp_path / "topss.md").write_text("# Mine\n")
    write_sections([entry], "paper", tmp_path)
    assert (tmp_path / "topss.md").read_text() == f"# Mine\n\n{SECTION}\n"
    (tmp_path / "topss.md").unlink()
    write_sections([entry], "paper", tmp_path)
    assert (tmp_path / "topss.md").read_text().startswith("# TOPSS (2002)\n\nAshayer")


@pytest.mark.parametrize("page", [BEGIN, END, f"{END} {BEGIN}", f"{BEGIN} {BEGIN} {END}", f"{BEGIN} {END} {END}"])
def test_marks_that_make_no_section_are_refused(page):
    """Rather than to lose what somebody wrote."""
    with pytest.raises(LabError, match=r"'edn\.md' must have"):
        replace_section(page, SECTION, "edn.md")


def test_results_that_are_missing_do_not_take_their_parts_off_the_page(entry, tmp_path):
    """A page that shows an experiment without results is left as it is."""
    page = tmp_path / "topss.md"
    text = f"{BEGIN}\n### Another one\n\nrows\n\n### A toy\n{END}\n"
    page.write_text(text)
    with pytest.raises(LabError, match="shows 'Another one', and there are no results of it"):
        write_sections([entry], "paper", tmp_path)
    assert page.read_text() == text
    assert [path.name for path in tmp_path.iterdir()] == ["topss.md"]


@given(st.text(), st.text(), st.text())
def test_whatever_is_written_around_a_section_stays(before, old, after):
    """And a section replaced twice is the second."""
    page = f"{before}{BEGIN}{old}{END}{after}"
    if page.count(BEGIN) == 1 and page.count(END) == 1:
        assert replace_section(page, SECTION, "x") == f"{before}{SECTION}{after}"
        assert replace_section(replace_section(page, "other " + SECTION, "x"), SECTION, "x").endswith(
            f"{SECTION}{after}"
        )


class Checker(HTMLParser):
    """Every tag closed in its turn; addresses and texts collected."""

    VOID = ("meta", "img", "br")

    def __init__(self):
        super().__init__()
        self.open, self.addresses, self.texts, self.ids = [], [], [], set()

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.open.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href")]
        self.ids |= {value for name, value in attrs if name == "id"}

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_the_page_is_whole_and_needs_nothing_else(entry):
    """Tags are closed, links lead to places of the page, images are inside and are the figures."""
    html = render_page([entry], "paper")
    checker = Checker()
    checker.feed(html)
    assert checker.open == []
    links = [address for address in checker.addresses if address.startswith("#")]
    images = [address for address in checker.addresses if address not in links]
    assert {link[1:] for link in links} <= checker.ids
    start = "data:image/svg+xml;base64,"
    assert [base64.b64decode(image.removeprefix(start)).decode() for image in images] == [
        svg for _, svg in entry.figures
    ]
    assert not re.search(r"https?://|@import|url\(", html.replace(images[0], "").replace(images[1], ""))


def test_the_page_says_it_all(entry):
    """Claims beside ours, reasons, settings, counts and times, machine and date; texts are texts and no tags."""
    checker = Checker()
    checker.feed(render_page([entry], "paper"))
    text = "\n".join(checker.texts)
    for part in (
        "TOPSS (2002)", "Table 1: toy-one", "Visits are few.", "< 2,000", "1,000", "holds", "does not hold", "a <b> | c",
        "It is not.", "limits", "10, 1,000", "medians over 3 seeds", "visits", "2.86", "Z80", "CP/M", "3.11.9", "numpy",
        "2026-02-03 04:05 UTC", "2 min",
    ):  # fmt: skip
        assert part in text, part
    assert "have changed since" not in text


@pytest.mark.slow
def test_reports_judge_what_is_stored(register, tmp_path):  # noqa: F811
    """Only experiments that have a result; one that cannot be judged any more says so and spoils nothing."""
    from dataclasses import replace

    results = Results(tmp_path)
    one, two, _ = register(toy("toy-one"), toy("toy-two"), toy("toy-three"))
    for experiment in (one, two):
        run_experiment(experiment, "small", results, silent)
    assert [entry.experiment.name for entry in gather([one, two, toy("toy-three")], "small", results)] == [
        "toy-one", "toy-two",
    ]  # fmt: skip

    def broken(rows, axes):
        raise KeyError("gone")

    changed = replace(one, plot=broken, settings={"small": Settings(seeds=9)})
    first, second = gather([changed, two], "small", results)
    assert first.problem == "The stored rows cannot be judged or drawn (KeyError: 'gone'); run it again."
    assert (first.outdated, second.outdated) == (True, False)
    assert second.findings
    html = render_page([first, second], "small")
    assert "run it again" in html
    assert html.count("Settings or code have changed since.") == 1
    assert "### Table 1: toy-one" in render_section([first, second], "small")


@pytest.mark.slow
def test_figures_are_the_same_bytes_each_time():
    """So that pages that are kept in a repository change only with their results."""
    rows = run(Settings(), silent)
    first, second = (draw_svg(toy("toy-one").drawings[0], rows) for _ in range(2))
    assert first == second
    assert first.startswith("<svg")


def test_rows_without_seeds_are_shown_as_they_are():
    """So are seeds with different points, and texts that differ."""
    plain = [{"n": 1, "ms": 0.5}, {"n": 2000, "ms": 0.25}]
    assert summarize(plain, 9) == (["n", "ms"], [["1", "0.5"], ["2,000", "0.25"]], "")
    uneven = [{"seed": 0, "n": 1}, {"seed": 1, "n": 1}, {"seed": 1, "n": 2}]
    assert len(summarize(uneven, 9).lines) == 3
    texts = [{"seed": 0, "best": "a"}, {"seed": 1, "best": "b"}]
    assert summarize(texts, 9).lines == [["0", "a"], ["1", "b"]]


@given(st.integers(1, 5), st.integers(1, 12), st.integers(2, 8), st.randoms())
def test_summaries_are_medians_over_seeds(n_seeds, n_points, at_most, random):
    """Against NumPy on each point; the first and the last point are always shown."""
    rows = [{"seed": s, "n": p, "ms": random.random()} for s in range(n_seeds) for p in range(n_points)]
    summary = summarize(rows, at_most)
    assert len(summary.lines) == min(n_points if n_seeds > 1 else len(rows), at_most)
    place = summary.columns.index("n")
    points = [int(line[place]) for line in summary.lines]
    assert {points[0], points[-1]} == {0, n_points - 1}
    for point, line in zip(points, summary.lines, strict=True):
        own = numbers([row for row in rows if row["n"] == point], "ms")
        assert line[summary.columns.index("ms")] == show_cell(float(np.median(own)))


@pytest.mark.parametrize(
    ("cell", "text"),
    [(True, "True"), ("a", "a"), (12345, "12,345"), (0.012345, "0.0123"), (1234.5, "1,234"), (2.0, "2"), (1e15, "1e+15"), (float("nan"), "nan")],
)  # fmt: skip
def test_cells_have_the_digits_that_matter(cell, text):
    """Whole numbers all of them."""
    assert show_cell(cell) == text


def test_every_paper_has_a_page_of_its_own():
    """No section overwrites another's."""
    assert len({paper.page for paper in PAPERS.values()}) == len(PAPERS)
