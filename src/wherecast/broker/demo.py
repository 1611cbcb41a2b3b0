"""A broker with a market that runs, to look at with the console: `python -m wherecast.broker.demo`.

Everything is in a temporary folder and in processes that end with this one: a broker, a publisher of stock quotes, and a
webhook receiver that does not answer at first. The day of the market has acts, told on the terminal as they begin.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
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


def play(client: Client, market: QuoteMarket, seconds: float) -> int:
    """Publish the acts, again and again, for so many seconds; returns how many quotes there were."""
    begun = now = time.monotonic()
    published = 0
    while True:
        for act in ACTS:
            _say(act.told)
            end = now + act.seconds
            while now < end:
                if now - begun >= seconds:
                    return published
                count = 4 + int(market.random.expovariate(1 / (3 + act.volume)))
                published += client.publish(SPACE, market.quotes(act, count)).accepted
                time.sleep(_TICK_S)
                now = time.monotonic()


def _say(text: str) -> None:
    sys.stdout.write(f"{datetime.now(UTC):%H:%M:%S}  {text}\n")
    sys.stdout.flush()


def ask(url: str, token: str, method: str, path: str, body: dict[str, Any]) -> Any:
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


def main(arguments: list[str] | None = None) -> None:
    """Run the demo until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m wherecast.broker.demo", description=main.__doc__)
    parser.add_argument("--port", type=int, default=8080, help="where the broker listens; 0: any free port")
    parser.add_argument("--seconds", type=float, default=math.inf, help="end by itself after so many")
    parser.add_argument("--seed", type=int, default=1, help="another market")
    given = parser.parse_args(arguments)
    market = QuoteMarket(given.seed)
    with (
        contextlib.suppress(KeyboardInterrupt),
        tempfile.TemporaryDirectory(prefix="wherecast-demo-") as folder,
        demo_broker(Path(folder), given.port) as (url, token),
        Client(url, token) as client,
    ):
        seed(client, market, CROWD)
        sys.stdout.write(
            f"\n  {CROWD + len(FILTERS):,} filters, {len(SYMBOLS)} symbols. Open the console; the link signs in once:\n"
        )
        sys.stdout.write(f"\n    {sign_in_link(url, token)}\n\n  Ctrl-C ends the demo and removes everything.\n\n")
        play(client, market, given.seconds)
    sys.stdout.write("The demo is over; nothing is left behind.\n")


if __name__ == "__main__":
    main()
