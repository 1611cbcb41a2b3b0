"""Install the wheel into an environment of its own and use it there: `python tests/packaging/try_wheel.py dist`.

Works in an empty folder, so that nothing of the checkout is found by accident. Needs PyPI.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

SCHEMA = '{"symbol": "string", "price": "double"}'
PROGRAM = """
import wherecast
from wherecast import Engine

assert "site-packages" in wherecast.__file__, wherecast.__file__
engine = Engine({"symbol": "string", "price": "double"})
engine.subscribe("ann", "symbol = 'IBM' AND price < 120")
assert engine.match({"symbol": "IBM", "price": 119.5}) == ["ann"]
engine.save("snapshot")
assert Engine.open("snapshot")["ann"] == "symbol = 'IBM' AND price < 120.0"
try:
    from wherecast import spark
    spark.create_session()
except Exception as error:
    assert "wherecast[spark]" in str(error), error
else:
    raise AssertionError("Spark is not installed here")
"""


def main(dist: Path) -> None:
    """Fail where the wheel or the source archive does not work alone."""
    (wheel,) = sorted(dist.glob("*.whl"))
    (source,) = sorted(dist.glob("*.tar.gz"))
    for archive in (wheel, source):
        with tempfile.TemporaryDirectory() as folder:
            print(f"trying {archive.name}", flush=True)
            try_archive(archive.resolve(), Path(folder))
    print("2 passed, 0 failed")


def try_archive(archive: Path, folder: Path) -> None:
    venv.create(folder / "env", with_pip=True)
    python, place = folder / "env" / "bin" / "python", folder / "place"
    place.mkdir()
    (place / "schema.json").write_text(SCHEMA)
    commands = [
        [python, "-m", "pip", "install", "--quiet", str(archive)],
        [python, "-c", PROGRAM],
        [folder / "env" / "bin" / "wherecast", "doctor"],
        [folder / "env" / "bin" / "wherecast", "check", "symbol = 'IBM' AND price < 120", "--schema", "schema.json"],
    ]
    for command in commands:
        subprocess.run(command, cwd=place, check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
