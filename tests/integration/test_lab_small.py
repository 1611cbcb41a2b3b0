"""An experiment of each paper on matching at its small scale, through the runner: rows come, claims can be judged, figures draw.

test_lab_matching.py runs all of theirs at a smaller scale. test_lab_edn.py and test_lab_chord.py run those of the other two
papers at this one, so none of them runs here again.

No claim is demanded here: many of the papers' statements need their sizes, and times mean nothing in a test. `pytest -s`
shows what was found.
"""

from __future__ import annotations

import math
from xml.etree import ElementTree as ET

import pytest

from wherecast.papers.lab.experiment import load_experiment
from wherecast.papers.lab.report.entries import PAPERS
from wherecast.papers.lab.results import Results
from wherecast.papers.lab.runner import is_current, run_experiment

pytestmark = pytest.mark.slow


ONE_OF_EACH = ("topss-matching", "gryphon-time", "rapidmatch-size-zipf")
ELSEWHERE = {"event-distribution-network-2002", "chord-pubsub-2004"}


def test_there_is_one_of_each_paper():
    """A new paper is run here too."""
    assert {load_experiment(name).paper for name in ONE_OF_EACH} == PAPERS.keys() - ELSEWHERE


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_small_scale(name, tmp_path):
    """A run leaves a result; each claim has a finding; each figure has labelled axes and shows something."""
    experiment = load_experiment(name)
    results = Results(tmp_path)
    said = []
    record, findings = run_experiment(experiment, "small", results, said.append)
    print(f"\n{name}: {record.seconds:.1f} s")
    for claim, (ours, holds) in findings:
        print(f"  {'holds' if holds else 'does not'}: {claim.claim}  paper: {claim.paper_figure}  ours: {ours}")

    assert is_current(experiment, "small", results)
    assert said, "nobody who waits is told anything"
    rows = results.rows(record)
    assert all(isinstance(cell, str | int | float | bool) for row in rows for cell in row.values())
    assert [claim for claim, _ in findings] == list(experiment.claims)
    for _, (ours, holds) in findings:
        assert isinstance(holds, bool)
        assert isinstance(ours, str) or math.isfinite(ours)
    for drawing in experiment.drawings:
        check_axes(drawing, rows)
        svg = ET.parse(results.folder(name, "small") / f"{drawing.name}.svg").getroot()
        assert svg.tag == "{http://www.w3.org/2000/svg}svg"


def check_axes(drawing, rows):
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    drawing.plot(rows, axes)
    assert axes.get_xlabel()
    assert axes.get_ylabel()
    assert axes.has_data()
