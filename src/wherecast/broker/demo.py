"""A broker with a market that runs, to look at with the console: `python -m wherecast.broker.demo`.

Everything is in a temporary folder and in processes that end with this one: a broker, a publisher of stock quotes, and a
webhook receiver that does not answer at first. The day of the market has acts, told on the terminal as they begin.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from wherecast.broker.client.clients import Client

SPACE = "quotes"
SCHEMA = {"symbol": "string", "price": "double", "change": "double", "volume": "bigint", "headline": "string"}
SYMBOLS = {
    "ACME": 120.0,
    "IBM": 240.0,
    "SAP": 210.0,
    "TSLA": 310.0,
    "NVDA": 180.0,
    "SHEL": 66.0,
    "NESN": 95.0,
    "TOY": 42.0,
}
#: How long the webhook receiver is out of order, from the beginning and after each round of acts; and how long a delivery is tried.
OUTAGE_S, DELIVERY_MS = 35.0, 12_000
#: Filters that nobody in the story owns, so that the index has something to do.
CROWD = 2_000
_TICK_S = 0.25


class Act(NamedTuple):
    """A part of the day: what is told, how long it takes, who moves and by which share, how busily, and with which news."""

    told: str
    seconds: float
    mover: str
    move: float
    volume: int
    headline: str | None


ACTS = (
    Act("The market opens quietly.", 12, "SAP", 0.01, 1, None),
    Act("A rumour: somebody wants to buy ACME. Watch acme-rally and takeover.", 14, "ACME", 0.14, 12, "Takeover talks at ACME, sources say"),
    Act("Chips follow: NVDA runs. Watch chips and big-money.", 12, "NVDA", 0.06, 8, None),
    Act("ACME denies everything. Watch acme-crash.", 14, "ACME", -0.22, 20, "ACME denies takeover talks"),
    Act("Oil calms the nerves.", 12, "SHEL", 0.03, 3, None),
)  # fmt: skip

#: Filters of the story: id, subscriber, filter.
FILTERS = (
    ("acme-rally", "ann", "symbol = 'ACME' AND change > 3"),
    ("acme-crash", "ann", "symbol = 'ACME' AND change < -2"),
    ("takeover", "bob", "headline ILIKE '%takeover%'"),
    ("chips", "bob", "symbol IN ('NVDA', 'TSLA') AND change > 2"),
    ("big-money", "desk", "price * volume > 3000000"),
    ("penny", "desk", "price < 43 AND volume > 500"),
    ("oil", "carol", "symbol = 'SHEL' AND price BETWEEN 66 AND 70"),
    ("quiet-europe", "carol", "symbol IN ('SAP', 'NESN') AND NOT (change > 1 OR change < -1) AND volume > 1500"),
)


class QuoteMarket:
    """Prices that wander, and follow the act."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - a story, not a secret
        self.prices = dict(SYMBOLS)

    def quotes(self, act: Act, count: int) -> list[dict[str, Any]]:
        """The quotes of one tick; every third is of the symbol that moves."""
        self.prices[act.mover] *= math.exp(act.move * _TICK_S / act.seconds)
        chosen = [act.mover if n % 3 == 0 else self.random.choice(list(SYMBOLS)) for n in range(count)]
        return [self._quote(symbol, act) for symbol in chosen]

    def _quote(self, symbol: str, act: Act) -> dict[str, Any]:
        is_mover, level = symbol == act.mover, SYMBOLS[symbol]
        back = 0.0 if is_mover else 0.02 * math.log(level / self.prices[symbol])  # to its level, in the end
        self.prices[symbol] *= math.exp(back + self.random.gauss(0, 0.001))
        price = round(self.prices[symbol], 2)
        volume = int(self.random.lognormvariate(5.5, 0.9) * (act.volume if is_mover else 1)) + 1
        headline = act.headline if is_mover and self.random.random() < 0.15 else None
        change = round(100 * (price / level - 1), 2)
        return {"symbol": symbol, "price": price, "change": change, "volume": volume, "headline": headline}

    def crowd(self, count: int) -> Iterator[tuple[str, str]]:
        """Alerts far from today's prices."""
        for number in range(count):
            symbol = self.random.choice(list(SYMBOLS))
            bound = SYMBOLS[symbol] * self.random.uniform(0.3, 0.7)
            yield f"crowd-{number:04}", f"symbol = '{symbol}' AND price < {bound:.2f}"


class DemoReceiver(ThreadingHTTPServer):
    """Where ann's alerts go: it agrees to be sent to, but is out of order for a while."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _ReceiverHandler)
        self.broken_until = time.monotonic() + OUTAGE_S

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/alerts"

    @property
    def is_broken(self) -> bool:
        return time.monotonic() < self.broken_until


class _ReceiverHandler(BaseHTTPRequestHandler):
    server: DemoReceiver

    def do_OPTIONS(self) -> None:
        self._answer(200)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(503 if self.server.is_broken else 204)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("WebHook-Allowed-Origin", "*")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the story is told elsewhere."""


@contextmanager
def demo_receiver() -> Iterator[DemoReceiver]:
    """The receiver, in a thread that ends with the block."""
    server = DemoReceiver()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def demo_broker(folder: Path, port: int, settings: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """A broker in a process of its own, with its data in `folder`: its address and an admin token."""
    command = [sys.executable, "-m", "wherecast", "serve", "--database", f"sqlite:///{folder / 'demo.db'}"]
    command += ["--port", str(port), *(part for pair in settings for part in ("--set", pair))]
    with (folder / "broker.log").open("w") as log:
        # A session of its own: Ctrl-C reaches this process only, which then ends the broker.
        broker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True)  # noqa: S603
    try:
        assert broker.stdout is not None
        line = broker.stdout.readline()
        if " at http" not in line:
            raise SystemExit((folder / "broker.log").read_text())
        yield line.split(" at ")[1].split()[0], broker.stdout.readline().rsplit(" ", 1)[-1].strip()
    finally:
        broker.terminate()
        try:
            broker.wait(10)
        except subprocess.TimeoutExpired:
            broker.kill()
            broker.wait()


def seed(client: Client, market: QuoteMarket, crowd: int) -> None:
    """The space, and all filters."""
    client.create_space(SPACE, SCHEMA)
    rows = [{"id": id, "filter": filter, "subscriber": id} for id, filter in market.crowd(crowd)]
    client.load(SPACE, rows)
    for id, subscriber, filter in FILTERS:
        client.subscribe(SPACE, filter, id=id, subscriber=subscriber, labels={"story": "demo"})


def add_subscribers(url: str, token: str, receiver: DemoReceiver) -> None:
    """Ann has a webhook, bob looks at a feed, the desk has a file, and carol is asleep."""
    night = [{"from": "00:00", "to": "23:59"}]
    people: dict[str, dict[str, Any]] = {
        "ann": {"time_zone": "America/New_York", "routes": [{"kind": "webhook", "target": receiver.url}]},
        "bob": {"time_zone": "Europe/Berlin", "routes": [{"kind": "feed"}, {"kind": "file", "target": "bob.jsonl"}]},
        "desk": {"digest_minutes": 1, "routes": [{"kind": "file", "target": "desk.jsonl"}]},
        "carol": {
            "time_zone": "Asia/Tokyo",
            "quiet_hours": night,
            "routes": [{"kind": "file", "target": "carol.jsonl"}],
        },
    }
    for name, body in people.items():
        ask(url, token, "PUT", f"subscribers/{name}", body)
    ask(url, token, "POST", "subscribers/ann/routes/r1/verify", None)


def play(client: Client, market: QuoteMarket, receiver: DemoReceiver, seconds: float) -> int:
    """Publish the acts, again and again, for so many seconds; returns how many quotes there were."""
    begun = now = time.monotonic()
    published = 0
    while True:
        receiver.broken_until = now + OUTAGE_S
        _say("Ann's webhook is out of order: her deliveries fail, and some become dead letters.")
        was_broken = True
        for act in ACTS:
            _say(act.told)
            end = now + act.seconds
            while now < end:
                if now - begun >= seconds:
                    return published
                if was_broken and not receiver.is_broken:
                    was_broken = False
                    _say("Ann's webhook works again. Replay her dead letters in the view Deliveries.")
                count = 4 + int(market.random.expovariate(1 / (3 + act.volume)))
                published += client.publish(SPACE, market.quotes(act, count)).accepted
                time.sleep(_TICK_S)
                now = time.monotonic()


def _say(text: str) -> None:
    sys.stdout.write(f"{datetime.now(UTC):%H:%M:%S}  {text}\n")
    sys.stdout.flush()


def ask(url: str, token: str, method: str, path: str, body: dict[str, Any] | None) -> Any:
    """A request that the client has no method for."""
    import httpx

    answer = httpx.request(method, f"{url}/v1/{path}", json=body, headers={"Authorization": f"Bearer {token}"})
    answer.raise_for_status()
    return answer.json()


def sign_in_link(url: str, token: str) -> str:
    """An address that signs in once, today."""
    soon = (datetime.now(UTC) + timedelta(hours=12)).isoformat()
    body = {"name": "demo", "scopes": ["admin", "operator"], "expires_at": soon}
    return f"{url}/console#once={ask(url, token, 'POST', 'tokens', body)['secret']}"


def _settings(folder: str) -> tuple[str, ...]:
    return "webhook_allow=127.0.0.0/8", f"delivery_ms={DELIVERY_MS}", f"file_folder={Path(folder) / 'files'}"


def main(arguments: list[str] | None = None) -> None:
    """Run the demo until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m wherecast.broker.demo", description=main.__doc__)
    parser.add_argument("--port", type=int, default=8080, help="where the broker listens; 0: any free port")
    parser.add_argument("--seconds", type=float, default=math.inf, help="end by itself after so many")
    parser.add_argument("--seed", type=int, default=1, help="another market")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does, nothing left behind
    market = QuoteMarket(given.seed)
    with (
        contextlib.suppress(KeyboardInterrupt),
        tempfile.TemporaryDirectory(prefix="wherecast-demo-") as folder,
        demo_receiver() as receiver,
        demo_broker(Path(folder), given.port, _settings(folder)) as (url, token),
        Client(url, token) as client,
    ):
        seed(client, market, CROWD)
        add_subscribers(url, token, receiver)
        sys.stdout.write(
            f"\n  {CROWD + len(FILTERS):,} filters, {len(SYMBOLS)} symbols. Open the console; the link signs in once:\n"
        )
        sys.stdout.write(f"\n    {sign_in_link(url, token)}\n\n  Ctrl-C ends the demo and removes everything.\n\n")
        play(client, market, receiver, given.seconds)
    sys.stdout.write("The demo is over; nothing is left behind.\n")


if __name__ == "__main__":
    main()
