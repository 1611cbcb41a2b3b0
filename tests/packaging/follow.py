"""Follow the quick starts as a reader does, from a built wheel, in an empty folder, and print how long each took.

    python tests/packaging/follow.py WHEEL library|spark|broker

The fenced blocks of the page are run as they stand, in order: shell in a shell, Python as the program that the page says to save. pip installs the wheel
where the page says `wherecast`; everything else comes from where pip gets it. Kernels are compiled anew.
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


def follow(wheel: Path, name: str) -> float:
    """Seconds that the page takes; an error is raised by the block that fails."""
    text = (PAGES / f"{name}.md").read_text("utf-8")
    blocks = re.findall(r"^```(sh|sh broker|python|python spark)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    program = "".join(block for kind, block in blocks if kind.startswith("python"))
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "constraints.txt").write_text(f"wherecast=={wheel.name.split('-')[1]}\n")
        kept = {
            key: value for key, value in os.environ.items() if key in {"PATH", "HOME", "LANG"} or key.startswith("PIP_")
        }
        environment = kept | {
            "PIP_CONSTRAINT": f"{folder}/constraints.txt",
            "PIP_FIND_LINKS": f"{os.environ.get('PIP_FIND_LINKS', '')} {wheel.resolve().parent}",
            "NUMBA_CACHE_DIR": f"{folder}/kernels",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_QUIET": "1",
        }
        broker = None
        try:
            for kind, block in blocks:
                if kind == "sh" and "wherecast serve" in block:
                    *install, serve = block.strip().splitlines()
                    run("\n".join(install), folder, environment)
                    broker = subprocess.Popen(
                        serve.split(),
                        cwd=folder,
                        env=environment,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.STDOUT,
                        text=True,
                    )
                    assert broker.stdout is not None
                    said = [broker.stdout.readline(), broker.stdout.readline()]
                    environment |= {"URL": said[0].split(" at ")[1].split()[0], "TOKEN": said[1].split()[-1]}
                elif kind.startswith("sh") and "export TOKEN" not in block:
                    run(block, folder, environment)
            if program:
                (Path(folder) / "program.py").write_text(program)
                run("venv/bin/python program.py", folder, environment)
        finally:
            if broker is not None:
                broker.terminate()
                broker.wait()
    return time.monotonic() - start


def run(command: str, folder: str, environment: dict[str, str]) -> None:
    begin = time.monotonic()
    subprocess.run(["sh", "-e", "-c", command], cwd=folder, env=environment, check=True)
    print(f"[{time.monotonic() - begin:6.1f} s] {command.splitlines()[0]}", flush=True)


if __name__ == "__main__":
    for page in sys.argv[2:]:
        wall = follow(Path(sys.argv[1]), page)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(f"{page}: {wall:.0f} s; {used.ru_utime + used.ru_stime:.0f} s of processor time so far", flush=True)
