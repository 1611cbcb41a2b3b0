"""Follow the quick starts as a reader does, from a built wheel, in an empty folder, and print how long each took.

    python tests/packaging/follow.py WHEEL library|spark|broker...

Every fenced block of the page is used as it stands, in order: Python goes into the file that the page says to save, shell blocks run. The
second word of a shell fence says more: `server` keeps running in a terminal of its own, `token` is where the reader copies what the broker printed.

Nothing comes from this machine but Python and the usual programs: a new virtual environment, no cache of pip, no compiled kernels, no Java on PATH.
pip installs the wheel where the page says `wherecast`, and everything else from its index.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PAGES = Path(__file__).parents[2] / "docs" / "start"
#: What a reader must see, or the page does not work.
PRINTED = {
    "library": ("['ann']", "['bob']", "price < 120.0", "did you mean 'price'?"),
    "spark": ("IBM", "ann", "did you mean 'price'?", "dan"),
    "broker": ('"matches": 1', '"chips"', "wherecast.match"),
}
WAIT_S = 60
#: A name to save Python as, or a fenced block.
STEPS = re.compile(r"Save this as `(\w+\.py)`|^```(sh|python)(?: (\w+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Reader:
    """Somebody with an empty folder and a few terminals."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder
        self.log = folder / "printed.txt"
        self.servers: list[subprocess.Popen[bytes]] = []
        constraints = folder / "constraints.txt"
        constraints.write_text(f"wherecast=={wheel.name.split('-')[1]}\n")
        kept = {k: v for k, v in os.environ.items() if k in {"HOME", "LANG"} or k.startswith("PIP_")}
        self.environment = kept | {
            "PATH": str(programs_without_java(folder / "programs")),
            "PIP_CONSTRAINT": str(constraints),
            "PIP_FIND_LINKS": str(wheel.resolve().parent),
            "PIP_NO_CACHE_DIR": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_QUIET": "1",
            "NUMBA_CACHE_DIR": str(folder / "kernels"),
        }

    def follow(self, page: str) -> None:
        """Do what the page says. Raises if a command fails."""
        program = self.folder / "program.py"
        for name, language, more, block in STEPS.findall(page):
            if name:
                program = self.folder / name
            elif language == "python":
                with program.open("a") as file:
                    file.write(block)
            elif more == "server":
                self.serve(block)
            elif more == "token":
                self.copy_token()
            else:
                self.run(block)

    def run(self, block: str) -> None:
        begin = time.monotonic()
        with self.log.open("ab") as log:
            done = subprocess.run(
                ["sh", "-e", "-c", block],
                cwd=self.folder,
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                check=False,
            )
        if done.returncode:
            raise SystemExit(f"failed: {block}\n{self.printed()[-3000:]}")
        print(f"[{time.monotonic() - begin:6.1f} s] {block.splitlines()[-1]}", flush=True)

    def serve(self, block: str) -> None:
        with self.log.open("ab") as log:
            server = subprocess.Popen(
                block.split(), cwd=self.folder, env=self.environment, stdout=log, stderr=subprocess.STDOUT
            )
        self.servers.append(server)

    def copy_token(self) -> None:
        """Address and token, as soon as the broker has printed them."""
        found = self.wait_for(r"at (http://\S+) (?s:.*)shown only now: (\S+)")
        self.environment |= {"URL": found[1], "TOKEN": found[2]}

    def wait_for(self, pattern: str) -> re.Match[str]:
        end = time.monotonic() + WAIT_S
        while (found := re.search(pattern, self.printed())) is None:
            if time.monotonic() > end:
                raise SystemExit(f"{pattern} was not printed within {WAIT_S} s:\n{self.printed()[-3000:]}")
            time.sleep(0.1)
        return found

    def printed(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def leave(self) -> None:
        for server in self.servers:
            server.terminate()
            server.wait()


def programs_without_java(folder: Path) -> Path:
    """A folder of links to the programs of the system, without those of Java, and to this Python."""
    folder.mkdir()
    for place in ("/usr/bin", "/bin"):
        for program in Path(place).iterdir():
            link = folder / program.name
            if not program.name.startswith(("java", "python3")) and not link.is_symlink():
                link.symlink_to(program)
    (folder / "python3").symlink_to(Path(sys.executable).resolve())
    return folder


def main() -> None:
    wheel = Path(sys.argv[1])
    for name in sys.argv[2:]:
        with tempfile.TemporaryDirectory() as folder:
            reader = Reader(Path(folder), wheel)
            begin = time.monotonic()
            try:
                reader.follow((PAGES / f"{name}.md").read_text("utf-8"))
                for text in PRINTED[name]:
                    reader.wait_for(re.escape(text))
            finally:
                reader.leave()
            wall = time.monotonic() - begin
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(f"{name}: {wall:.0f} s; {used.ru_utime + used.ru_stime:.0f} s of processor time so far", flush=True)


if __name__ == "__main__":
    main()
