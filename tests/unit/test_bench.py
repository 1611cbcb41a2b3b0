"""The benchmark harness, at sizes where no time means anything."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from wherecast.bench.cases import CaseError, choose_cases, read_cases
from wherecast.bench.contestants import Baselines, build_engine, check_engine
from wherecast.bench.growth import growth_exponent, smallest_workload
from wherecast.bench.measure import Contestant, WrongCountError, time_calls, time_in_turns
from wherecast.bench.results import Point, Result
from wherecast.bench.run import run_cases
from wherecast.bench.workloads.form import Conjunctions, WorkloadError
from wherecast.bench.workloads.reference import SOURCES, draw_filters, make_workload
from wherecast.bench.workloads.truth import GroundTruth, find_truth, match_none
from wherecast.cli.app import app

pytestmark = pytest.mark.slow  # every case builds engines, prototypes and baselines

MATCH_FIELDS = {
    "us_per_event",
    "matches_per_event",
    "build_s",
    "open_s",
    "bytes_per_subscription",
    "subscriptions",
    "candidates_per_event",
}


def bench(*args: object, code: int = 0) -> str:
    """Standard output of `wherecast bench ...`; on failure, all output."""
    result = CliRunner().invoke(app, ["bench", *map(str, args)])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.output


def declare(folder: Path, **fields: object) -> Path:
    """A file with one case on gryphon, 500 subscriptions."""
    case = {"name": "small", "workload": "gryphon", "scale": 0.005, "expected": 19, "groups": ["floor"], **fields}
    lines = [f"{key} = {json.dumps(value)}" for key, value in case.items()]
    path = folder / "cases.toml"
    path.write_text("[[case]]\n" + "\n".join(lines))
    return path


# -- workloads and truth ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "scale", "subscriptions", "events", "matches", "id_sum"),
    [
        ("topss", 0.005, 5_000, 2_000, 44_172, 109_571_514),
        ("stock", 0.02, 29_600, 20_000, 5, 101_590),
        ("light", 0.005, 1_000, 2_000, 161, 63_574),
        ("light", 0.02, 4_000, 2_000, 1_047, 2_255_072),
        ("gryphon", 0.005, 500, 2_000, 19, 5_230),
        ("gryphon", 0.02, 2_000, 2_000, 75, 71_094),
        ("range", 0.005, 2_500, 5_000, 44, 58_172),
        ("range", 0.02, 10_000, 5_000, 197, 1_050_150),
    ],
)
def test_workloads_are_the_reference(name, scale, subscriptions, events, matches, id_sum):
    """A workload has the subscriptions, events and matches that the reference generator has."""
    workload = make_workload(name, scale)
    truth = workload.truth()
    assert (len(workload), len(workload.events)) == (subscriptions, events)
    assert (truth.matches, int(truth.id_sums.sum())) == (matches, id_sum)


@pytest.mark.parametrize("name", SOURCES)
def test_declared_counts_are_of_the_declared_workloads(name):
    """Every workload has a case, and all its cases at full size expect the same count."""
    cases = [c for c in read_cases() if c.workload == name and c.kind != "growth"]
    assert len({(c.scale, c.expected) for c in cases}) == 1


@pytest.mark.parametrize("case", [c for c in read_cases() if c.kind == "growth"], ids=lambda c: c.name)
def test_growth_starts_from_the_declared_count(case):
    """The smallest set of a growth curve has its size and finds the declared number of matches."""
    workload = smallest_workload(case)
    assert len(workload) == min(case.sizes)
    assert workload.truth().matches == case.expected


def test_truth_is_the_meaning_of_the_operators():
    """Brute force agrees with NumPy on every operator."""
    events = np.arange(5.0)[:, None]
    predicates = Conjunctions(np.arange(5), np.zeros(4, int), np.arange(4), np.full(4, 2.0))
    holds = np.array([[x == 2, x != 2, x < 2, x > 2] for x in range(5)])
    assert find_truth(*predicates, events).counts.tolist() == holds.sum(1).tolist()
    assert find_truth(*predicates, events, first_id=10).id_sums.tolist() == (holds @ np.arange(10, 14)).tolist()
    assert match_none(*predicates, events[3:]).tolist() == [True, False, True, False]


def test_more_filters_are_another_draw():
    """Parts differ from each other and are the same each time."""
    one, again, other = (draw_filters("stock", 300, part) for part in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(one, again, strict=True))
    assert not np.array_equal(one.value, other.value[: one.value.size])


def test_predicates_are_taken_and_joined():
    """Taking all parts and joining them gives the same rows."""
    whole = make_workload("range", 0.0001).predicates
    parts = [whole.take(np.arange(0, 20)), whole.take(np.arange(20, len(whole)))]
    assert all(np.array_equal(a, b) for a, b in zip(whole, Conjunctions.join(parts), strict=True))


def test_unknown_and_empty_workloads_are_refused():
    """A wrong name is answered with the right ones, a scale of nothing with advice."""
    with pytest.raises(WorkloadError, match="there are: topss, stock"):
        make_workload("stocks")
    with pytest.raises(WorkloadError, match="larger scale"):
        make_workload("stock", 0.000001)


# -- contestants and measuring ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("baseline", ["floor", "scan", "duckdb"])
@pytest.mark.parametrize("name", SOURCES)
def test_baselines_find_the_truth(name, baseline):
    """Every baseline finds on every workload what brute force finds."""
    workload = make_workload(name, 0.002)
    baselines = Baselines(workload, workload.subscription_table(), workload.event_batch(), workload.truth().matches)
    contestant = baselines.get(baseline)
    everything = find_truth(*workload.predicates, workload.events[:200]).matches
    assert contestant.run(200) == everything
    assert baselines.get(baseline) is contestant


def test_a_wrong_baseline_is_not_handed_out():
    """A baseline that finds another number is refused."""
    workload = make_workload("gryphon", 0.005)
    baselines = Baselines(workload, workload.subscription_table(), workload.event_batch(), 20)
    with pytest.raises(WrongCountError, match="floor on gryphon: 19 matches in the first 50 events, expected 20"):
        baselines.get("floor")


def test_an_engine_with_other_ids_is_refused():
    """Right counts with wrong ids do not pass."""
    workload = make_workload("gryphon", 0.005)
    engine, _ = build_engine(workload.schema, "scan", workload.subscription_table(), workload.event_batch())
    truth = workload.truth()
    check_engine(engine, workload.event_batch(), truth)
    with pytest.raises(WrongCountError, match="id sum"):
        check_engine(engine, workload.event_batch(), GroundTruth(truth.counts, truth.id_sums + 1))


class Clock:
    """Stands in for `time`: it goes on only where a test says so."""

    def __init__(self) -> None:
        self.now_ns = 0

    def pass_us(self, microseconds: int) -> None:
        self.now_ns += microseconds * 1_000

    def perf_counter_ns(self) -> int:
        return self.now_ns

    def perf_counter(self) -> float:
        return self.now_ns / 1e9


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("wherecast.bench.measure.time", clock)
    return clock


def test_slow_contestants_get_fewer_events(clock):
    """A pass that would exceed the budget is shortened; a quick one sees all events."""
    slow = Contestant("slow", lambda n: clock.pass_us(200 * n) or 2 * n)
    quick = Contestant("quick", lambda n: clock.pass_us(n) or 3 * n)
    timings = time_in_turns([slow, quick], 1000, rounds=1, budget_s=0.02)
    assert (timings["quick"].events, timings["slow"].events) == (1000, 100)
    assert timings["slow"].matches_per_event == 2
    assert timings["slow"].us_per_event == pytest.approx(200)
    assert timings["quick"].us_per_event == pytest.approx(1)


def test_percentiles_are_of_single_calls(clock):
    """The slowest call shows in the 99th percentile and not in the median."""
    latency = time_calls([lambda: clock.pass_us(3)] * 50 + [lambda: clock.pass_us(10_000)])
    assert latency.calls == 51
    assert latency.p50_us == 3
    assert latency.p99_us > 1_000


def test_growth_exponent():
    """Linear growth has exponent 1, constant time 0; one point has none."""
    points = [Point(n, n / 10, 1, 1, 1) for n in (10, 100, 1000)]
    assert growth_exponent(points) == pytest.approx(1)
    assert growth_exponent([p._replace(us_per_event=3.0) for p in points]) == pytest.approx(0)
    assert growth_exponent(points[:1]) is None


# -- cases ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"colour": "red"}, "unknown fields colour"),
        ({"output": "text"}, "there are: counts, ids, lists"),
        ({"groups": ["flor"]}, "groups 'flor'"),
        ({"baselines": ["spark"]}, "baselines 'spark'"),
    ],
)
def test_wrong_declarations_are_refused(tmp_path, fields, message):
    """A declaration that means nothing is refused with the alternatives."""
    with pytest.raises(CaseError, match=message):
        read_cases(declare(tmp_path, **fields))


def test_incomplete_and_repeated_declarations_are_refused(tmp_path):
    """A case needs its fields, and a name of its own."""
    path = declare(tmp_path)
    path.write_text(path.read_text() + "\n" + path.read_text())
    with pytest.raises(CaseError, match="'small' is declared twice"):
        read_cases(path)
    path.write_text("[[case]]\nname = 'a'\nworkload = 'topss'\n")
    with pytest.raises(CaseError, match="lacks expected, groups"):
        read_cases(path)
    path.write_text("[[case")
    with pytest.raises(CaseError, match="cannot be read"):
        read_cases(path)


def test_cases_are_chosen_by_name_or_group():
    """Names keep their order, groups that of the file; unknown ones are refused."""
    cases = read_cases()
    assert [c.name for c in choose_cases(cases, ["range", "gryphon"], None)] == ["range", "gryphon"]
    assert {c.workload for c in choose_cases(cases, [], "floor")} == set(SOURCES)
    assert all("latency" in c.groups for c in choose_cases(cases, [], "latency"))
    for names, group in ((["nothing"], None), ([], "nothing")):
        with pytest.raises(CaseError, match="there are:"):
            choose_cases(cases, names, group)


def test_goals_count_only_at_the_declared_size():
    """A goal is met or missed at full size; at another size there is none."""
    case = dataclasses.replace(read_cases()[0], goals=(("floor_ratio", 0.3), ("bytes_per_subscription", 64)))
    goals = Result(case, 10, {"floor_ratio": 0.2}).goals()
    assert [g.met for g in goals] == [True, False]
    assert Result(case.scaled(0.1), 10, {"floor_ratio": 0.2}).goals() == []


# -- commands ---------------------------------------------------------------------------------------------------------


def test_run_reports_ratios_and_machine(tmp_path):
    """`bench run` gives one JSON line per case with figures, ratios to the baselines and the machine; and a table."""
    cases = declare(tmp_path, baselines=["floor", "scan", "duckdb"], budget_s=0.05, goals=[])
    cases.write_text(cases.read_text().replace("goals = []", "goals = { floor_ratio = 1e9, nothing = 1 }"))
    out = tmp_path / "sub" / "results.jsonl"
    table = bench("run", "--cases", cases, "--repeat", 1, "--out", out)
    assert "nothing - > 1" in table
    (line,) = [json.loads(text) for text in out.read_text().splitlines()]
    ratios = {
        f"{name}_{figure}" for name in ("floor", "scan", "duckdb") for figure in ("us_per_event", "ratio", "build_s")
    }
    assert (
        MATCH_FIELDS | ratios | {"case", "workload", "matcher", "output", "threads", "scale", "events"} <= line.keys()
    )
    assert line["floor_ratio"] == pytest.approx(line["us_per_event"] / line["floor_us_per_event"], rel=0.01)
    assert [g["met"] for g in line["goals"]] == [True, False]
    assert {"cpu", "cores", "python", "packages"} <= line["machine"].keys()
    assert {"numpy", "numba", "wherecast"} <= line["machine"]["packages"].keys()


def test_a_wrong_count_fails_loudly(tmp_path):
    """A case that expects another number of matches ends the run with exit code 1 and no figures."""
    out = tmp_path / "results.jsonl"
    output = bench("run", "--cases", declare(tmp_path, expected=20), "--out", out, code=1)
    assert "small: 19 matches in the first 50 events, expected 20; nothing is timed" in output
    assert out.read_text() == ""


@pytest.mark.parametrize("kind", ["updates", "latency", "growth"])
def test_a_wrong_count_fails_every_kind(tmp_path, kind):
    """Updates, latency and growth check before they measure, too."""
    sizes = {"sizes": [500, 700]} if kind == "growth" else {}
    path = declare(tmp_path, kind=kind, expected=20, events=50, seconds=0.1, **sizes)
    with pytest.raises(WrongCountError, match="19 matches in the first 50 events, expected 20"):
        list(run_cases(read_cases(path), rounds=1, say=lambda _: None))


@pytest.mark.parametrize("output", ["ids", "lists"])
def test_run_measures_every_output(tmp_path, output):
    """Ids and lists are measured like counts, and find as much; batches change nothing."""
    path = declare(tmp_path, output=output, events=100, batch=7)
    line = json.loads(bench("run", "--cases", path, "--repeat", 1, "--json"))
    assert line["matches_per_event"] == pytest.approx(make_workload("gryphon", 0.005).truth().matches / 50, abs=0.5)
    assert line["ns_per_match"] > 0


def test_run_measures_changes(tmp_path):
    """The updates case reports latencies, the rate of changes and the price of a delta, and leaves the engine right."""
    path = declare(tmp_path, kind="updates", groups=["updates"], seconds=0.1)
    line = json.loads(bench("run", "--cases", path, "--group", "updates", "--repeat", 1, "--json"))
    figures = {f"{call}_{p}_us" for call in ("subscribe", "unsubscribe") for p in ("p50", "p99")}
    assert figures | {"changes_per_s", "us_per_change", "delta_ratio", "meanwhile_us_per_event"} <= line.keys()
    assert line["changes_per_s"] > 0
    assert line["us_per_change"] == pytest.approx(1e6 / line["changes_per_s"], rel=0.01)


def test_run_measures_single_events(tmp_path):
    """The latency case reports percentiles of `Engine.match`."""
    path = declare(tmp_path, kind="latency", groups=["latency"], events=60)
    line = json.loads(bench("run", "--cases", path, "--repeat", 1, "--json"))
    assert 0 < line["p50_us"] <= line["p99_us"]
    assert line["events"] == 60


def test_run_measures_threads(tmp_path):
    """With threads the ratio to one thread is reported, or why there is none."""
    path = declare(tmp_path, threads=2, groups=["threads"], baselines=["one-thread"])
    line = json.loads(bench("run", "--cases", path, "--repeat", 1, "--json"))
    assert "one_thread_ratio" in line or "2 threads asked for" in line["skipped"]


def test_declared_cases_run_at_another_scale():
    """`--scale` takes any declared case to another size, checked by brute force."""
    line = json.loads(bench("run", "gryphon-ids", "--scale", 0.005, "--repeat", 1, "--json"))
    assert (line["subscriptions"], line["scale"]) == (500, 0.005)
    assert "goals" not in line


def test_list_names_the_cases():
    """`bench list` shows every declared case."""
    shown = bench("list")
    assert all(case.name in shown for case in read_cases())


def test_curves_are_measured_and_drawn(tmp_path):
    """`bench curves` writes points with the same matches at every size, and two pictures."""
    path = declare(tmp_path, kind="growth", groups=["growth"], events=100, sizes=[500, 1000, 2000, 4000])
    bench("curves", "--cases", path, "--out", tmp_path / "out", "--largest", 2000, "--repeat", 1)
    line = json.loads((tmp_path / "out" / "curves.jsonl").read_text())
    assert [p["subscriptions"] for p in line["points"]] == [500, 1000, 2000]
    assert len({p["matches_per_event"] for p in line["points"]}) == 1
    assert isinstance(line["growth_exponent"], float)
    assert (tmp_path / "out" / "curves.png").read_bytes()[:4] == b"\x89PNG"
    assert "microseconds per event" in (tmp_path / "out" / "curves.svg").read_text()


def test_match_measures_any_files(tmp_path):
    """`bench match` gives one JSON line, or a table, for files of any kind."""
    bench("workloads", "--out", tmp_path, "gryphon", "--scale", 0.005)
    folder = tmp_path / "gryphon"
    assert (
        json.loads((folder / "truth.json").read_text())["counts"]
        == make_workload("gryphon", 0.005).truth().counts.tolist()
    )
    files = ["--schema", folder / "schema.json", "--subscriptions", folder / "subscriptions.parquet"]
    files += ["--events", folder / "events.parquet", "--repeat", 1]
    for output in ("counts", "ids", "lists"):
        line = json.loads(bench("match", *files, "--matcher", "adaptive", "--output", output, "--json"))
        assert line.keys() >= MATCH_FIELDS
        assert line["subscriptions"] == 500
    assert "us_per_event" in bench("match", *files)


def test_match_reads_text_files(tmp_path):
    """CSV and JSON lines do as well; bad subscriptions are left out and counted."""
    (tmp_path / "schema.yaml").write_text("symbol: string\nprice: double\n")
    (tmp_path / "subs.jsonl").write_text(
        '{"id": 1, "filter": "price < 5"}\n{"id": "a", "filter": "symbol = \'X\'"}\n{"id": 2, "filter": "prise < 5"}\n'
    )
    (tmp_path / "events.jsonl").write_text('{"symbol": "X", "price": 4.0}\n{"symbol": "Y"}\n')
    (tmp_path / "events.csv").write_text("symbol,price\nX,4.0\nY,\n")
    for events in ("events.jsonl", "events.csv"):
        files = [
            "--schema",
            tmp_path / "schema.yaml",
            "--subscriptions",
            tmp_path / "subs.jsonl",
            "--events",
            tmp_path / events,
        ]
        result = CliRunner().invoke(app, ["bench", "match", *map(str, files), "--json", "--repeat", "1"])
        line = json.loads(result.stdout)
        assert (line["subscriptions"], line["matches_per_event"]) == (2, 1.0)
        assert "1 subscriptions are bad" in result.stderr


def test_match_refuses_what_cannot_be_measured(tmp_path):
    """No good subscription, or no event, ends with exit code 1 and the reason."""
    (tmp_path / "schema.json").write_text('{"price": "double"}')
    (tmp_path / "bad.csv").write_text("id,filter\n1,prise < 5\n")
    (tmp_path / "good.csv").write_text("id,filter\n1,price < 5\n")
    (tmp_path / "events.csv").write_text("price\n4\n")
    (tmp_path / "none.csv").write_text("price\n")
    schema = ("--schema", tmp_path / "schema.json", "--repeat", 1)
    bad = bench("match", *schema, "--subscriptions", tmp_path / "bad.csv", "--events", tmp_path / "events.csv", code=1)
    assert "none of the subscriptions" in bad
    none = bench("match", *schema, "--subscriptions", tmp_path / "good.csv", "--events", tmp_path / "none.csv", code=1)
    assert "has no events" in none
