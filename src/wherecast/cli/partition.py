"""`wherecast partition`: plan how subscriptions are spread over servers, measure a plan, look at it.

What it does is in `wherecast.partition`, imported when a command runs.
"""

from __future__ import annotations

import enum
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wherecast.cli.failures import CommandError
from wherecast.cli.report import say, say_note

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from rich.table import Table

    from wherecast.language.events.events import EventBatch
    from wherecast.language.events.schema import Schema
    from wherecast.language.filters.filters import Filters
    from wherecast.partition.picture import Picture

partition_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Spread subscriptions over servers so that events go only where they may match.",
)


class StrategyName(enum.StrEnum):
    """How to spread."""

    AUTO = "auto"
    BROADCAST = "broadcast"
    EVENT_SPACE = "event-space"
    FILTER_SET = "filter-set"


PlanArgument = Annotated[
    Path, typer.Argument(exists=True, file_okay=False, metavar="PLAN", help="A plan made by `partition plan`.")
]
SubscriptionsOption = Annotated[
    Path,
    typer.Option(exists=True, dir_okay=False, metavar="FILE", help="Columns id and filter: .csv, .jsonl or .parquet."),
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


@partition_app.command("plan")
def make_plan(
    schema: Annotated[
        Path, typer.Option("--schema", "-s", exists=True, dir_okay=False, metavar="FILE", help="JSON or YAML.")
    ],
    subscriptions: SubscriptionsOption,
    servers: Annotated[int, typer.Option(min=1, max=100_000, help="How many servers to spread over.")],
    out: Annotated[
        Path,
        typer.Option(metavar="PLAN", file_okay=False, help="The directory to write; an older plan there is replaced."),
    ],
    strategy: Annotated[
        StrategyName, typer.Option(help="auto takes the one with the lowest expected cost.")
    ] = StrategyName.AUTO,
    events: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            metavar="FILE",
            help="A sample of the traffic to compare strategies on. Default: events generated from the filters' constants.",
        ),
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A routing attribute of event-space; repeat it. Default: chosen by entropy."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Plan which server holds which subscriptions, and say what that is expected to cost.

    \b
    broadcast    every server has all subscriptions, events stay where they are
    event-space  by the values that filters compare for equality; an event goes
                 to one server at most
    filter-set   like filters together; an event goes to every server whose
                 summary holds it

    Bad subscriptions are reported and left out.

    \b
    Examples:
      wherecast partition plan -s schema.json --subscriptions subs.csv \\
          --servers 50 --out plan
      wherecast partition plan -s schema.json --subscriptions subs.csv \\
          --servers 8 --strategy event-space --by symbol \\
          --events events.csv --out plan
    """
    from wherecast.cli.report import note_first_compilation
    from wherecast.language.events.schema import Schema
    from wherecast.partition.plan import Plan

    attributes = Schema.from_file(schema)
    note_first_compilation()
    filters, weights = _read_filters(subscriptions, attributes)
    sample = None if events is None else _read_events(events, attributes)
    plan = Plan.build(
        filters, weights, attributes, servers, strategy=strategy.value, events=sample, attributes=by or None
    )
    plan.save(out)
    if as_json:
        costs = [{name: _tidy(value) for name, value in cost._asdict().items()} for cost in plan.considered]
        typer.echo(json.dumps({**_tidied(plan.stats()), "considered": costs}))
    else:
        typer.echo(plan.explain())
    say(f"the plan is in {out}")


@partition_app.command("evaluate")
def evaluate_plan(
    plan: PlanArgument,
    events: Annotated[
        Path, typer.Option(exists=True, dir_okay=False, metavar="FILE", help="One column per attribute.")
    ],
    subscriptions: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            metavar="FILE",
            help="The subscriptions of the plan, to find out which deliveries match nothing.",
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Route events by a plan and say how well it does.

    \b
    imbalance          largest expected load / smallest
    traffic_imbalance  most events on one server / fewest, as measured
    dropped            share of events that no server needs to see
    servers_per_event  deliveries per event
    false_positives    share of deliveries that an exact summary would not make
    unmatched          share of deliveries that match nothing (with --subscriptions)
    replication        copies per subscription
    summary_bytes      what the dispatcher holds
    us_per_event       time of dispatch, in batches of 10,000

    \b
    Example:
      wherecast partition evaluate plan --events events.parquet --json
    """
    from wherecast.partition.evaluate import evaluate
    from wherecast.partition.plan import Plan

    opened = Plan.open(plan)
    known = None if subscriptions is None else _read_filters(subscriptions, opened.schema)
    figures = _tidied(evaluate(opened, _read_events(events, opened.schema), known)._asdict())
    if as_json:
        typer.echo(json.dumps(figures))
        return
    if figures["false_positives"] is None:
        say_note("false positives of filter-set are known only with --subscriptions")
    width = max(map(len, figures))
    for name, value in figures.items():
        typer.echo(f"{name:<{width}}  {_shown(value)}")


@partition_app.command("show")
def show_plan(
    plan: PlanArgument,
    out: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            help="Where the picture goes: .png, .svg or .html; repeat it. Default: PLAN.html and, with matplotlib, PLAN.png.",
        ),
    ] = None,
    threshold: Annotated[
        float, typer.Option(min=1.0, help="Rebalance until the largest load is at most this many times the smallest.")
    ] = 1.2,
) -> None:
    """Show the servers of a plan with their load, before and after rebalancing, and draw it. The plan is not changed.

    \b
    Examples:
      wherecast partition show plan
      wherecast partition show plan --out load.png --out load.html --threshold 1.1
    """
    import importlib.util

    from wherecast.partition.picture import picture_loads, save_picture
    from wherecast.partition.plan import Plan

    opened = Plan.open(plan)
    picture = picture_loads(opened, threshold)
    typer.echo(opened.explain())
    typer.echo()
    _print(_load_table(picture))
    typer.echo(picture.caption)
    has_matplotlib = importlib.util.find_spec("matplotlib") is not None
    beside = plan.resolve()
    default = [beside.with_name(beside.name + suffix) for suffix in (".html", ".png")[: 1 + has_matplotlib]]
    for path in out or default:
        save_picture(picture, path)
        say(f"picture: {path}")


def _read_filters(path: Path, schema: Schema) -> tuple[Filters, npt.NDArray[np.int64]]:
    """The filters of a file and their subscriptions; bad rows are reported and left out."""
    import numpy as np

    from wherecast.cli.subscriptions import read_subscriptions, report_bad
    from wherecast.engine.subscriptions import compile_parts
    from wherecast.engine.subscriptions import read_subscriptions as check_rows
    from wherecast.language.filters.compile import Compiler
    from wherecast.language.filters.filters import concat_filters
    from wherecast.partition.plan import weigh
    from wherecast.progress import shown

    found = read_subscriptions(path)
    incoming = check_rows(zip(found.ids, found.filters, strict=True))
    # A filter whose id is bad is left out, too, however good it is.
    texts = [None if row in incoming.errors else text for row, text in enumerate(incoming.texts)]
    with shown():
        parts = compile_parts(Compiler(schema), texts)
    report_bad(path, found, incoming.refused(error for part in parts for error in part.errors).items())
    filters = concat_filters([part.compiled.filters for part in parts], schema)
    if not filters.n_filters:
        raise CommandError(f"'{path}' has no good subscriptions; there is nothing to plan")
    return filters, np.concatenate([weigh(part.compiled) for part in parts])


def _read_events(path: Path, schema: Schema) -> EventBatch:
    """All good events of a file as one batch; bad ones are counted."""
    from wherecast.cli.events import read_events
    from wherecast.language.events.events import EventBatch

    events, broken = read_events(path, schema)
    batch = EventBatch.read(schema, events, on_error="skip")
    if not len(batch):
        raise CommandError(f"'{path}' has no good events")
    if broken + len(batch.errors):
        say_note(f"{broken + len(batch.errors):,} bad events of {path} left out; `wherecast match` says why")
    return batch


_BAR = 40


def _load_table(picture: Picture) -> Table:
    """A row per server: its load, a bar of it, and the load after rebalancing."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    rebalanced = picture.after is not None
    for title in ("server", "load", "", *(("after", "") if rebalanced else ())):
        table.add_column(title, justify="left" if not title else "right", no_wrap=True)
    after = picture.before if picture.after is None else picture.after
    most = max(float(picture.before.max()), float(after.max())) or 1.0
    for server, (old, new) in enumerate(zip(picture.before.tolist(), after.tolist(), strict=True)):
        cells = [f"{server}", f"{old:,.0f}", "█" * round(_BAR * old / most)]
        table.add_row(*cells, *([f"{new:,.0f}", "█" * round(_BAR * new / most)] if rebalanced else []))
    return table


def _print(table: Table) -> None:
    import sys

    from rich.console import Console

    # A pipe has no width: give the table room instead of wrapping it.
    (Console() if sys.stdout.isatty() else Console(width=200)).print(table)


def _tidied(figures: dict[str, Any]) -> dict[str, Any]:
    return {name: _tidy(value) for name, value in figures.items()}


def _tidy(value: Any) -> Any:
    """A figure as JSON has it: infinite ones are null, others have six digits that matter."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else None


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}" if isinstance(value, float) else str(value)
