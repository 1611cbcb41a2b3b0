"""A save takes effect as a whole or not at all, whatever happens to it, and readers never notice."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tests.examples import scaled
from tests.unit.snapshots import files_of, folder_of, save_small

from wherecast.errors import SnapshotError
from wherecast.index.snapshot import MANIFEST, open_snapshot, write_snapshot


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return save_small(tmp_path / "snap")


KILLER = """
import json, os, random, signal, sys, time
import numpy as np, pyarrow as pa
from wherecast.index.snapshot import open_snapshot, write_snapshot

path, kills = sys.argv[1], int(sys.argv[2])

def save(value, size):
    write_snapshot(path, {"g/a": np.full(size, value), "h/s": pa.array([str(value)] * 9), "b": np.ones(3, bool)}, {"value": value})

def check(old, new):
    found = open_snapshot(path)
    value = found.facts["value"]
    assert value in (old, new), (old, new, value)
    assert (found.arrays["g/a"] == value).all() and found.arrays["h/s"].to_pylist() == [str(value)] * 9
    return value

def die_at(step):
    left = [step]
    def tick(event, args=()):
        if event == "open" or event.split(".")[0] in ("os", "shutil", "fcntl", "mmap"):
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
    sync = os.fsync
    def fsync(descriptor):
        tick("os.fsync before")
        sync(descriptor)
        tick("os.fsync after")
    os.fsync = fsync
    sys.addaudithook(tick)

def child(work):
    pid = os.fork()
    if not pid:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return pid

save(0, 100)
value, step, survived, changed = 0, 0, False, 0
while not survived:
    step += 1
    def work():
        die_at(step)
        save(step, 100)
    status = os.waitpid(child(work), 0)[1]
    survived = os.WIFEXITED(status)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, status
    before, value = value, check(value, step)
    changed += before != value
assert value == step
rng = random.Random(3)
for k in range(kills):
    number = 1000 + k
    pid = child(lambda: [save(number, 300_000) for _ in range(50)])
    time.sleep(rng.random() * 0.03)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    value = check(value, number)
save(-1, 100)
print(json.dumps({"steps": step, "changed": changed, "left": sorted(os.listdir(path)), "version": open_snapshot(path).version}))
"""


class TestSaving:
    @pytest.mark.slow
    def test_killed_anywhere(self, tmp_path):
        """A save killed at each of its steps, and at random moments, leaves the old snapshot or the new one."""
        run = subprocess.run(
            [sys.executable, "-c", KILLER, str(tmp_path / "s"), "25"], capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, run.stderr
        found = json.loads(run.stdout)
        print(f"killed at {found['steps'] - 1} steps; {found['changed']} of those saves had taken effect")
        assert found["steps"] > 25
        assert 1 < found["changed"] < found["steps"]
        assert len(found["left"]) == 2, "nothing of the killed saves is left"

    @pytest.mark.parametrize("call", ["fsync", "replace"])
    def test_failing_disk(self, small, monkeypatch, call):
        """A save that fails reports it; the old snapshot is there and no half of a new one is taken for whole."""
        real, calls = getattr(os, call), []
        count = 5 if call == "fsync" else 1
        for fail_at in range(1, count + 1):

            def failing(*args, fail_at=fail_at):
                calls.append(args)
                if len(calls) == fail_at:
                    raise OSError(28, "No space left on device")
                return real(*args)

            calls.clear()
            monkeypatch.setattr(os, call, failing)
            before = open_snapshot(small).version
            with pytest.raises(SnapshotError, match="No space left"):
                write_snapshot(small, {"g/a": np.arange(9), "h/b": np.arange(9)}, {"n": 6})
            monkeypatch.setattr(os, call, real)
            found = open_snapshot(small)
            assert (found.version > before) == (found.facts["n"] == 6)
            write_snapshot(small, {"lo": np.arange(5)}, {"n": 5})
            assert len(files_of(small)) == 2

    def test_old_version_stays_mapped(self, small):
        """A reader of an older version keeps reading it, although its files are gone."""
        old = open_snapshot(small)
        write_snapshot(small, {"lo": np.zeros(5, np.int32)}, {})
        assert len(files_of(small)) == 2
        assert old.arrays["lo"].tolist() == [0, 1, 2, 3, 4]
        assert old.arrays["g/names"].to_pylist() == ["a", "é", "", "xyz"]
        assert open_snapshot(small).arrays["lo"].tolist() == [0] * 5
        assert open_snapshot(small).version == old.version + 1

    @pytest.mark.slow
    def test_open_while_saving(self, tmp_path):
        """Readers see one whole version after the other while a writer saves as fast as it can."""
        path, saves = tmp_path / "s", max(60, scaled(150))
        write_snapshot(path, {"g/a": np.full(500, 0), "b": np.full(7, 0)}, {"n": 0})

        def save() -> None:
            for n in range(1, saves):
                write_snapshot(path, {"g/a": np.full(500, n), "b": np.full(7, n)}, {"n": n})

        seen = []
        with ThreadPoolExecutor(1) as pool:
            writer = pool.submit(save)
            while not writer.done():
                found = open_snapshot(path)
                n = found.facts["n"]
                assert found.version == n + 1
                assert (found.arrays["g/a"] == n).all()
                assert (found.arrays["b"] == n).all()
                seen.append(n)
        writer.result()  # raises what the writer raised
        assert seen == sorted(seen)
        assert len(set(seen)) > 5

    def test_two_writers(self, tmp_path):
        """Saves at the same time happen one after the other."""
        path = tmp_path / "s"
        with ThreadPoolExecutor(8) as pool:
            writers = [pool.submit(write_snapshot, path, {"a": np.full(99, i)}, {"n": i}) for i in range(8)]
        for writer in writers:
            writer.result()
        found = open_snapshot(path)
        assert found.version == 8
        assert (found.arrays["a"] == found.facts["n"]).all()
        assert len(files_of(path)) == 2

    def test_leftovers(self, small):
        """What killed saves left is removed by the next save; what is not ours is left alone."""
        (small / "v000002-0123456789abcdef").mkdir()
        (small / "v000002-0123456789abcdef" / "g.arrow").write_bytes(b"half")
        (small / "manifest-0123456789abcdef.tmp").write_bytes(b"{")
        (small / "notes.txt").write_text("mine")
        assert open_snapshot(small).version == 1
        write_snapshot(small, {}, {})
        assert open_snapshot(small).version == 3
        assert sorted(p.name for p in small.iterdir()) == [MANIFEST, "notes.txt", folder_of(small).name]

    def test_no_parent(self, tmp_path):
        """Only the last folder of a path is made."""
        with pytest.raises(SnapshotError, match="cannot be saved"):
            write_snapshot(tmp_path / "no" / "s", {}, {})


HOLDER = """
import sys
from wherecast.index.snapshot import open_snapshot
found = open_snapshot(sys.argv[1])
print(sum(int(a.sum()) for a in found.arrays.values()), flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux's /proc/self/smaps")
def test_processes_share_pages(tmp_path):
    """Two processes that read the same snapshot have its pages once."""
    write_snapshot(tmp_path / "s", {f"g/{i}": np.arange(1_000_000) for i in range(4)}, {})
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "s")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert int(other.stdout.readline()) == 4 * 499_999_500_000
        found = open_snapshot(tmp_path / "s")
        assert sum(int(a.sum()) for a in found.arrays.values()) == 4 * 499_999_500_000
        kilobytes = mapped_kilobytes(str(tmp_path / "s"))
        other.stdin.close()
    # Clean or dirty: whether the system has written a page to the disk yet has nothing to do with who has it.
    shared, private = (kilobytes[f"{whose}_Clean"] + kilobytes[f"{whose}_Dirty"] for whose in ("Shared", "Private"))
    print(f"{found.nbytes >> 10} kB mapped: {shared} kB shared, {private} kB private")
    assert shared > 0.95 * (found.nbytes >> 10)
    assert private < 0.02 * shared


def mapped_kilobytes(path: str) -> dict[str, int]:
    """Sums over the maps of files below a path, from smaps."""
    sums: dict[str, int] = {}
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            inside = path in line
        elif inside and (entry := re.match(r"(\w+): +(\d+) kB", line)):
            sums[entry[1]] = sums.get(entry[1], 0) + int(entry[2])
    return sums
