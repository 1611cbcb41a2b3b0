"""`wherecast peer`: a peer of the overlay, and what talks to one.

What it does is in `wherecast.overlay`, imported when a command runs.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import nullcontext, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from wherecast.cli.failures import CommandError, usage_error
from wherecast.cli.report import Shortlist, say, say_note

if TYPE_CHECKING:
    from subprocess import Popen

    from wherecast.overlay.client import PeerClient
    from wherecast.overlay.peer import PeerOptions
    from wherecast.overlay.picture import Place
    from wherecast.overlay.requests import Told

peer_app = typer.Typer(invoke_without_command=True, rich_markup_mode="rich")

_T = TypeVar("_T")
_Line = tuple[int, str]  # the number of a line, from 1 on, and its text
_EVENTS_AT_ONCE = 64
_SECRET_BYTES = 16

PeerOption = Annotated[str, typer.Option("--peer", "-p", metavar="HOST:PORT", help="Any peer of the ring.")]
SecretOption = Annotated[
    Path | None,
    typer.Option(
        exists=True, dir_okay=False, metavar="FILE", help="The secret that all peers and clients of a ring share."
    ),
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
LOCAL = "127.0.0.1:7001"


@peer_app.callback()
def run_peer(
    context: typer.Context,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where others reach this peer.")] = LOCAL,
    join: Annotated[
        list[str] | None, typer.Option(metavar="HOST:PORT", help="A peer of the ring to join; repeat it.")
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option(
            "--schema",
            "-s",
            exists=True,
            dir_okay=False,
            metavar="FILE",
            help="JSON or YAML. With --join it must be the ring's; may be left out.",
        ),
    ] = None,
    found: Annotated[
        int | None,
        typer.Option(min=1, help="Wait for this many peers, this one included, then start a ring. Default: R + 1."),
    ] = None,
    successors: Annotated[int, typer.Option(min=1, max=64, metavar="R", help="Neighbours that each peer follows.")] = 4,
    copies: Annotated[int, typer.Option(min=1, max=64, help="How many peers store each entry.")] = 3,
    nodes: Annotated[
        int, typer.Option(min=1, help="Peers to lay small domains out for; at least as many as there will be.")
    ] = 64,
    secret_file: SecretOption = None,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            file_okay=False,
            help="Where durable subscriptions are kept across restarts. Default: not kept.",
        ),
    ] = None,
) -> None:
    """Publish and subscribe over a ring of peers, without a server (Chord, OPChord).

    Without a command: run a peer until it is interrupted. A ring starts with R + 1 peers. The first is started without --join and waits for the others, which join it. Settings
    are the first peer's; peers that join take them over.

    \b
    Examples:
      wherecast peer --listen 127.0.0.1:7001 -s schema.json --successors 2
      wherecast peer --listen 127.0.0.1:7002 --join 127.0.0.1:7001
      wherecast peer --listen 127.0.0.1:7003 --join 127.0.0.1:7001 --state peer-3
      wherecast peer ring --size 8 -s schema.json
    """
    if context.invoked_subcommand is not None:
        return
    import asyncio  # 40 ms, which commands of other kinds need not pay

    from wherecast.language.events.schema import Schema
    from wherecast.overlay.peer import PeerOptions
    from wherecast.overlay.requests import Rules, parse_endpoint
    from wherecast.overlay.settings import RingSettings

    for endpoint in (listen, *(join or ())):
        parse_endpoint(endpoint)
    if schema is None and not join:
        raise usage_error("a peer without --join starts a ring, and a ring needs a --schema")
    rules = None
    if schema is not None:
        settings = RingSettings(successors=successors, copies=copies, nodes=nodes)
        rules = Rules(settings, Schema.from_file(schema))
    founders = found or (0 if join else successors + 1)
    if founders and founders <= successors:
        say_note(
            f"{founders} founders are fewer than {successors + 1}: failures may split the ring until more have joined"
        )
    options = PeerOptions(listen, tuple(join or ()), rules, founders, _read_secret(secret_file), state)
    asyncio.run(_run_peer(options))


async def _run_peer(options: PeerOptions) -> None:
    import asyncio

    from wherecast.overlay.peer import Peer

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await Peer(options, lambda text: say(f"{options.listen}: {text}")).run(stop)


@peer_app.command()
def subscribe(
    id: Annotated[str, typer.Argument(help="The id of the subscription, unique at this peer.")],
    filter: Annotated[str, typer.Argument(help="A SQL condition.")],
    peer: PeerOption = LOCAL,
    durable: Annotated[
        bool,
        typer.Option("--durable", help="The peer keeps the subscription, and its notices, when this command ends."),
    ] = False,
    count: Annotated[
        int | None, typer.Option(min=0, help="End after this many notices. Default: run until interrupted.")
    ] = None,
    secret_file: SecretOption = None,
) -> None:
    """Register a filter and print its events as they come, a JSON object per line.

    Without --durable the subscription ends with the command. With it, the next `subscribe` of the same id prints what came in
    between.

    \b
    Examples:
      wherecast peer subscribe ibm "symbol = 'IBM' AND price < 120"
      wherecast peer subscribe ibm "symbol = 'IBM'" --durable --count 0
    """

    async def work(client: PeerClient) -> None:
        await client.subscribe(id, filter, is_durable=durable)
        say(f"{id}: subscribed at {peer}")
        told = 0
        while count is None or told < count:
            notice = await client.notice()
            typer.echo(json.dumps({"subscription": notice.subscription, "event": json.loads(notice.event)}))
            sys.stdout.flush()
            client.taken(notice)
            told += 1

    _with_client(peer, secret_file, work)


@peer_app.command()
def unsubscribe(
    id: Annotated[str, typer.Argument(help="The id of a durable subscription at this peer.")],
    peer: PeerOption = LOCAL,
    secret_file: SecretOption = None,
) -> None:
    """End a durable subscription."""
    _with_client(peer, secret_file, lambda client: client.unsubscribe(id))
    say(f"{id}: unsubscribed at {peer}")


@peer_app.command()
def publish(
    events: Annotated[str, typer.Argument(metavar="FILE", help="JSON lines, or - for standard input.")] = "-",
    peer: PeerOption = LOCAL,
    wait: Annotated[
        float, typer.Option(min=0, max=120, metavar="SECONDS", help="How long to wait for subscribers to answer.")
    ] = 10.0,
    secret_file: SecretOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Publish events through any peer. Exit code 1 if subscribers did not all answer, or an event was refused.

    \b
    Examples:
      wherecast peer publish events.jsonl --peer 127.0.0.1:7003
      echo '{"symbol": "IBM", "price": 99.5}' | wherecast peer publish
    """
    figures = {"events": 0, "clauses": 0, "hops": 0, "unconfirmed": 0}
    bad = Shortlist("events that were refused")

    async def work(client: PeerClient) -> None:
        for batch in _batches(_lines(events)):
            for told in await _publish(client, batch, wait, bad):
                figures["events"] += 1
                figures["clauses"] += told.clauses
                figures["hops"] += told.hops
                figures["unconfirmed"] += not told.is_complete

    _with_client(peer, secret_file, work)
    bad.finish()
    if as_json:
        typer.echo(json.dumps({**figures, "refused": bad.count}))
    else:
        say(
            f"{figures['events']:,} events, {figures['clauses']:,} clauses hold, {figures['hops']:,} hops to collect their lists"
        )
    if bad.count or figures["unconfirmed"]:
        raise CommandError(
            f"{bad.count:,} events were refused; {figures['unconfirmed']:,} were not confirmed by all subscribers "
            f"within {wait:g} seconds: the ring goes on trying"
        )


async def _publish(client: PeerClient, batch: list[_Line], wait: float, bad: Shortlist) -> list[Told]:
    """A batch; if one of its events is bad, each for itself, to find out which."""
    from wherecast.overlay.requests import PeerError

    try:
        return list(await client.publish([text for _, text in batch], wait_s=wait))
    except PeerError as error:
        if len(batch) == 1:
            bad.add(f"line {batch[0][0]}: {error}")
            return []
    return [told for line in batch for told in await _publish(client, [line], wait, bad)]


def _lines(source: str) -> Iterator[_Line]:
    """Lines that are not empty."""
    try:
        with nullcontext(sys.stdin) if source == "-" else Path(source).open(encoding="utf-8") as stream:
            for number, line in enumerate(stream, 1):
                if line.strip():
                    yield number, line
    except OSError as error:
        raise usage_error(f"'{source}' cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CommandError(f"'{source}' is not UTF-8 text; convert it first") from None


def _batches(lines: Iterator[_Line]) -> Iterator[list[_Line]]:
    """Events that are published together; those that somebody types, one by one."""
    size = 1 if sys.stdin.isatty() else _EVENTS_AT_ONCE
    while batch := list(islice(lines, size)):
        yield batch


@peer_app.command()
def status(peer: PeerOption = LOCAL, secret_file: SecretOption = None, as_json: JsonFlag = False) -> None:
    """Show a peer's neighbours, what it holds, and what it has counted.

    \b
    Example:
      wherecast peer status --peer 127.0.0.1:7003 --json
    """
    found = _with_client(peer, secret_file, lambda client: client.status())
    if as_json:
        typer.echo(json.dumps(found))
        return
    counters = found.pop("counters")
    for name, value in {**found, **{f"counted: {name}": count for name, count in counters.items()}}.items():
        typer.echo(f"{name:<24} {_shown(value)}")


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    return f"{value['peer']} ({value['id'][:8]})" if isinstance(value, dict) else str(value)


@peer_app.command()
def ring(
    schema: Annotated[
        Path, typer.Option("--schema", "-s", exists=True, dir_okay=False, metavar="FILE", help="JSON or YAML.")
    ],
    size: Annotated[int, typer.Option(min=2, max=64, help="How many peers.")] = 8,
    port: Annotated[
        int, typer.Option(min=1, max=65_000, help="The port of the first peer; the others take the next ones.")
    ] = 7001,
    successors: Annotated[int, typer.Option(min=1, max=63, metavar="R", help="Neighbours that each peer follows.")] = 4,
    copies: Annotated[int, typer.Option(min=1, max=64, help="How many peers store each entry.")] = 3,
    secret_file: SecretOption = None,
    state: Annotated[
        Path | None,
        typer.Option(metavar="DIR", file_okay=False, help="A directory in which each peer keeps its state."),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", dir_okay=False, help="Draw the ring: .png or .svg.")
    ] = None,
) -> None:
    """Start a ring of processes on this machine, show it, and run it until it is interrupted.

    \b
    Example:
      wherecast peer ring --size 8 -s schema.json --picture ring.png
    """
    import asyncio

    from wherecast.overlay.local_ring import LocalRing
    from wherecast.overlay.picture import draw_text, places, save_picture

    reach = min(successors, size - 1)
    secret, endpoints = _read_secret(secret_file), [f"127.0.0.1:{port + number}" for number in range(size)]
    _stop_when_terminated()
    with LocalRing(
        schema, successors=reach, copies=min(copies, reach + 1), secret=secret_file, state=state
    ) as processes:
        processes.start_all(endpoints)
        statuses = asyncio.run(processes.wait_until_whole(secret, 60 + 2 * size))
        found, bits = places(statuses), int(statuses[0]["bits"])
        _print_ring(found)
        typer.echo(draw_text(found, bits))
        if picture is not None:
            save_picture(found, bits, picture)
            say(f"picture: {picture}")
        say("Ctrl-C stops all peers")
        with suppress(KeyboardInterrupt):
            _wait_for_all(processes.processes)
        say("stopping")


def _wait_for_all(running: dict[str, Popen[bytes]]) -> None:
    """Peers may end, one by one, and the ring goes on without them."""
    left = dict(running)
    while left:
        time.sleep(0.5)
        for endpoint in [endpoint for endpoint, process in left.items() if process.poll() is not None]:
            say(f"{endpoint}: ended with code {left.pop(endpoint).returncode}")


def _stop_when_terminated() -> None:
    """SIGTERM ends as an interrupt does, so that no peer is left behind."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


def _print_ring(found: list[Place]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("", "peer", "id", "of the ring", "successor", "keys", "subscriptions"):
        table.add_column(title, justify="left" if title in ("peer", "id", "successor") else "right", no_wrap=True)
    for number, place in enumerate(found, 1):
        cells = (place.peer, f"{place.id:040x}"[:12], f"{place.share:.1%}", place.successor)
        table.add_row(str(number), *cells, f"{place.keys:,}", f"{place.subscriptions:,}")
    # A pipe has no width: give the table room instead of wrapping it.
    (Console() if sys.stdout.isatty() else Console(width=200)).print(table)


def _read_secret(path: Path | None) -> bytes | None:
    if path is None:
        return None
    found = path.read_bytes().strip()
    if len(found) < _SECRET_BYTES:
        raise usage_error(f"'{path}' holds {len(found)} bytes; a secret has at least {_SECRET_BYTES}")
    return found


def _with_client(peer: str, secret_file: Path | None, work: Callable[[PeerClient], Coroutine[Any, Any, _T]]) -> _T:
    import asyncio

    from wherecast.overlay.client import PeerClient

    async def run() -> _T:
        async with PeerClient(peer, _read_secret(secret_file)) as client:
            return await work(client)

    return asyncio.run(run())
