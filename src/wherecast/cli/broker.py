"""`wherecast serve`, and what talks to a broker: space, subscribe, publish, tail, subscriptions.

What they do is in `wherecast.broker`, imported when a command runs.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wherecast.cli.failures import CommandError, usage_error
from wherecast.errors import FilterError, WherecastError

if TYPE_CHECKING:
    from wherecast.broker.client.calls import BrokerError
    from wherecast.broker.client.clients import Client

broker_app = typer.Typer(rich_markup_mode="rich")

#: Events that `publish` sends in one request.
_AT_ONCE = 1_000

UrlOption = Annotated[str, typer.Option("--url", envvar="WHERECAST_URL", metavar="URL", help="Where the broker is.")]
TokenOption = Annotated[
    str | None, typer.Option("--token", envvar="WHERECAST_TOKEN", metavar="TOKEN", help="A token of the broker.")
]
SpaceOption = Annotated[str, typer.Option("--space", envvar="WHERECAST_SPACE", metavar="NAME", help="The space.")]
LOCAL, _SPACE = "http://127.0.0.1:8080", "default"


@broker_app.command()
def serve(
    database: Annotated[
        str | None,
        typer.Option(metavar="URL", help="sqlite:///FILE or postgresql://... Default: sqlite:///wherecast.db."),
    ] = None,
    host: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Where to listen. Default: 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65_535, help="Default: 8080; 0: any free one.")] = None,
    snapshots: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Where engines are saved for a quick start. Default: beside a SQLite file."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, metavar="FILE", help="Settings in TOML.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any other setting; repeat it.")
    ] = None,
) -> None:
    """Run a broker: durable subscriptions, publish and live feeds over HTTP.

    With nothing configured it keeps everything in wherecast.db, and prints an admin token at the first start.

    Settings come from flags, else from environment variables (WHERECAST_ and the name in upper case), else from the TOML
    file. They are: database, host, port, snapshots, max_body_bytes, max_event_bytes, max_batch_events, body_timeout_s,
    max_connections, max_requests_per_s, max_events_per_s, slow_reader_s, heartbeat_s, retention_ms, retention_bytes,
    answers_ms, session_ms, tombstones_ms, snapshot_every; and for delivery webhook_allow, webhook_timeout_s,
    endpoint_concurrency, delivery_concurrency, delivery_ms, delivered_ms, dead_letters_ms, smtp, mail_from, chat_services,
    file_folder. The guides "The broker" and "Delivery" say what each does.

    \b
    Examples:
      wherecast serve
      wherecast serve --database postgresql://user@host/db --port 8081
      wherecast serve --config broker.toml --set slow_reader_s=10
    """
    try:
        from wherecast.broker.serve import serve as run
        from wherecast.broker.settings import read_settings
    except ImportError as error:
        raise CommandError(f"the broker needs more packages ({error.name}): pip install 'wherecast[server]'") from None

    gc.enable()
    flags: dict[str, Any] = {"database": database, "host": host, "port": port, "snapshots": snapshots}
    for pair in settings or []:
        name, equals, value = pair.partition("=")
        if not equals:
            raise usage_error(f"--set {pair}: write NAME=VALUE")
        flags[name] = value
    run(read_settings(flags, config))


def connect(url: str, token: str | None) -> Client:
    """A client of the broker that a command talks to."""
    from wherecast.broker.client.clients import Client

    if not token:
        raise usage_error("a token is needed: --token, or the environment variable WHERECAST_TOKEN")
    gc.enable()
    return Client(url, token)


@broker_app.command()
def space(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the space.")],
    schema: Annotated[
        Path,
        typer.Option(
            "--schema", "-s", exists=True, dir_okay=False, metavar="FILE",
            help='The attributes and their types, JSON or YAML: {"symbol": "string", "price": "double"}.',
        ),
    ],
    url: UrlOption = LOCAL,
    token: TokenOption = None,
) -> None:  # fmt: skip
    """Make a space: a schema, with its subscriptions and events. If there is one, add the attributes that are new.

    \b
    Examples:
      wherecast space quotes --schema schema.json
    """
    from wherecast.broker.client.calls import BrokerError
    from wherecast.language.events.schema import Schema

    given = Schema.from_file(schema).to_dict()
    with connect(url, token) as client:
        try:
            made = client.create_space(name, given)
        except BrokerError as error:
            if error.status != 409:
                raise
            made = client.grow_space(name, given)
    typer.echo(json.dumps(made))


@broker_app.command()
def subscribe(
    filter: Annotated[str, typer.Argument(metavar="FILTER", help="A SQL condition.")],
    space: SpaceOption = _SPACE,
    id: Annotated[str | None, typer.Option(metavar="ID", help="Default: the broker makes one.")] = None,
    subscriber: Annotated[str | None, typer.Option(metavar="NAME", help="Who is told. Default: the id.")] = None,
    label: Annotated[list[str] | None, typer.Option(metavar="NAME:VALUE", help="A label; repeat it.")] = None,
    url: UrlOption = LOCAL,
    token: TokenOption = None,
) -> None:
    """Register a filter with a broker and print the subscription as JSON.

    \b
    Examples:
      wherecast subscribe "symbol = 'IBM' AND price < 120" --space quotes --subscriber alice
      wherecast subscribe "price > 1000" --space quotes --id dear --label team:desk-1
    """
    from wherecast.broker.client.calls import BrokerError

    labels = dict(_pair(text) for text in label or [])
    with connect(url, token) as client:
        try:
            made = client.subscribe(space, filter, id=id, subscriber=subscriber, labels=labels)
        except BrokerError as error:
            raise _with_place(error, filter) from None
    typer.echo(json.dumps(dataclasses.asdict(made)))


def _with_place(error: BrokerError, filter: str) -> WherecastError:
    """An error that shows where a filter is wrong, if that is what the broker says."""
    told = error.problem
    if "start" not in told:
        return error
    return FilterError(told["reason"], told["detail"], text=filter, start=told["start"], end=told["end"])


def _pair(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        raise usage_error(f"--label {text}: write NAME:VALUE")
    return name, value


@broker_app.command()
def publish(
    events: Annotated[
        str, typer.Argument(metavar="EVENT", help="JSON, or - for a line of JSON each on standard input.")
    ],
    space: SpaceOption = _SPACE,
    url: UrlOption = LOCAL,
    token: TokenOption = None,
) -> None:
    """Publish events to a broker, and print what became of them as JSON.

    The exit code is 1 if some events were refused.

    \b
    Examples:
      wherecast publish '{"symbol": "IBM", "price": 119.5}' --space quotes
      wherecast publish - --space quotes < events.jsonl
    """
    accepted, matches, refused = 0, 0, 0
    with connect(url, token) as client:
        for first, batch in _batches(events):
            receipt = client.publish(space, batch)
            accepted, matches = accepted + receipt.accepted, matches + receipt.matches
            refused += len(receipt.refused)
            for one in receipt.refused:
                sys.stderr.write(f"event {first + one['row'] + 1}: {one['detail']}\n")
    typer.echo(json.dumps({"accepted": accepted, "matches": matches, "refused": refused}))
    if refused:
        raise typer.Exit(1)


def _batches(events: str) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    lines = enumerate(sys.stdin if events == "-" else [events])
    written = ((number, line) for number, line in lines if line.strip())
    while batch := [pair for _, pair in zip(range(_AT_ONCE), written, strict=False)]:
        yield batch[0][0], [_event(number, line) for number, line in batch]


def _event(number: int, line: str) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except ValueError as error:
        raise CommandError(f"event {number + 1} is not JSON: {error}") from None
    if not isinstance(event, dict):
        raise CommandError(f"event {number + 1} is not an object: {line.strip()[:80]}")
    return event


@broker_app.command()
def tail(
    space: SpaceOption = _SPACE,
    subscription: Annotated[str | None, typer.Option(metavar="ID", help="Matches of this subscription only.")] = None,
    subscriber: Annotated[str | None, typer.Option(metavar="NAME", help="Matches of this subscriber only.")] = None,
    after: Annotated[
        str | None,
        typer.Option(metavar="POSITION", help="The last event seen, or earliest. Default: from the next event on."),
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, help="End after so many.")] = None,
    url: UrlOption = LOCAL,
    token: TokenOption = None,
) -> None:
    """Print matches as they come, a line of JSON each, until interrupted.

    \b
    Examples:
      wherecast tail --space quotes --subscriber alice
      wherecast tail --space quotes --subscription cheap-ibm --after earliest --count 10
    """
    with connect(url, token) as client:
        for number, event in enumerate(
            client.feed(space, subscription=subscription, subscriber=subscriber, after=after), 1
        ):
            sys.stdout.write(json.dumps(dataclasses.asdict(event)) + "\n")
            sys.stdout.flush()
            if number == count:
                return


@broker_app.command()
def subscriptions(
    space: SpaceOption = _SPACE,
    subscriber: Annotated[str | None, typer.Option(metavar="NAME", help="Those of this subscriber.")] = None,
    label: Annotated[str | None, typer.Option(metavar="NAME:VALUE", help="Those with this label.")] = None,
    text: Annotated[str | None, typer.Option(metavar="TEXT", help="Those with this in their id or filter.")] = None,
    url: UrlOption = LOCAL,
    token: TokenOption = None,
) -> None:
    """Print the subscriptions of a space, a line of JSON each.

    \b
    Examples:
      wherecast subscriptions --space quotes
      wherecast subscriptions --space quotes --subscriber alice --text IBM
    """
    with connect(url, token) as client:
        for row in client.subscriptions(space, subscriber=subscriber, label=label, text=text):
            typer.echo(json.dumps(dataclasses.asdict(row)))
