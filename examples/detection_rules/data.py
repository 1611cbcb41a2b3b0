"""Rules and events to try the job with: `python data.py FOLDER` writes 50,000 rules and 100,000 events."""

import json
import random
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

PROGRAMS = [f"tool{n}.exe" for n in range(2_000)]
WORDS = ["-enc", "bypass", "mimikatz", "vssadmin", "schtasks", "certutil", "http://", "-hidden", "rundll32", "lsass"]
DOMAINS, OWNERS, SEVERITIES = ["CORP", "LAB", "EXT"], [f"team-{n}" for n in range(40)], ["low", "medium", "high"]


def make_rules(count: int, seed: int = 1) -> pa.Table:
    """A table of rules; conditions are SQL over the events."""
    rng = random.Random(seed)
    forms = [
        lambda: f"process.name = '{rng.choice(PROGRAMS)}' AND process.command LIKE '%{rng.choice(WORDS)}%'",
        lambda: f"network.port = {rng.randrange(1024, 9000)} AND network.bytes > {rng.randrange(1, 90) * 1000}",
        lambda: (
            f"user.domain = '{rng.choice(DOMAINS)}' AND process.name IN ('{rng.choice(PROGRAMS)}', '{rng.choice(PROGRAMS)}')"
        ),
        lambda: (
            f"host LIKE 'srv-{rng.randrange(300)}%' AND NOT user.name = 'admin' AND network.port < {rng.randrange(1024, 1100)}"
        ),
    ]
    return pa.table(
        {
            "rule_id": [f"R{n:06d}" for n in range(count)],
            "condition": [rng.choice(forms)() for _ in range(count)],
            "severity": [rng.choice(SEVERITIES) for _ in range(count)],
            "owner": [rng.choice(OWNERS) for _ in range(count)],
            "tags": [rng.sample(WORDS, 2) for _ in range(count)],
        }
    )


def make_events(count: int, seed: int = 2) -> list[str]:
    """Events, a line of JSON each."""
    rng, start = random.Random(seed), datetime(2024, 5, 1, tzinfo=UTC)
    return [
        json.dumps(
            {
                "time": (start + timedelta(milliseconds=n)).isoformat(),
                "host": f"srv-{rng.randrange(400)}",
                "user": {"name": rng.choice(["admin", "ann", "bob"]), "domain": rng.choice(DOMAINS)},
                "process": {"name": rng.choice(PROGRAMS), "command": " ".join(rng.sample(WORDS, 3))},
                "network": {"port": rng.randrange(1024, 9000), "bytes": rng.randrange(100_000)},
            }
        )
        for n in range(count)
    ]


def write(folder: Path, rules: int, events: int) -> None:
    """The table and the first file of events."""
    for name in ("rules", "events"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    pq.write_table(make_rules(rules), folder / "rules" / "rules.parquet")
    (folder / "events" / "0.json").write_text("\n".join(make_events(events)))


if __name__ == "__main__":
    write(Path(sys.argv[1]), 50_000, 100_000)
