"""The instructions on words, also those that only some machines have as one instruction."""

from __future__ import annotations

import importlib
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from wherecast.kernels.guards import LEAST_OWN, SINGLE, find_guarded
from wherecast.kernels.jit import (
    HAS_COMPRESS,
    compress_16,
    count_both_4,
    count_rows_1,
    count_rows_4,
    count_rows_16,
    direct,
    frozen,
    hot,
    jit,
    stay_apart,
    trailing_zeros,
)
from wherecast.kernels.kept import source_stamp
from wherecast.kernels.leaves import BITS_AT, FOLD_AT, PLACES_PADDING, ROW_AT, SHIFT_AT, gather_rows

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
RNG = np.random.default_rng(11)
WORDS = RNG.integers(0, 2**64, 400, np.uint64)


@hot
def compress(source: Any, at: int, mask: Any, target: Any, n: int) -> None:
    """As a kernel calls it."""
    compress_16(source, at, mask, target, n)


@hot
def count_16(maps: Any, places: Any, at: int, skip: int) -> Any:
    """As a kernel calls it."""
    return count_rows_16(maps, places, places.size, at, skip)


@hot
def count_4(maps: Any, places: Any, at: int, skip: int) -> Any:
    """As a kernel calls it."""
    return count_rows_4(maps, places, places.size, at, skip)


@hot
def count_1(maps: Any, places: Any, at: int, skip: int) -> Any:
    """As a kernel calls it."""
    return count_rows_1(maps, places, places.size, at, skip)


@hot
def count_both(a: Any, i: int, b: Any, k: int) -> Any:
    """As a kernel calls it."""
    return count_both_4(a, i, b, k)


@hot
def lowest(word: Any) -> Any:
    """As a kernel calls it."""
    return trailing_zeros(word)


def bits(words: Any) -> int:
    return sum(int(word).bit_count() for word in words)


@pytest.mark.parametrize("mask", [0, 1, 0x8000, 0xFFFF, 0b1000100000010011])
def test_compress(mask: int) -> None:
    """The chosen ones stand together, in order."""
    source, target = np.arange(100, 160, dtype=np.int32), np.zeros(40, np.int32)
    compress(source, 3, np.uint64(mask | 0xABC0000), target, 5)
    chosen = [103 + i for i in range(16) if mask >> i & 1]
    assert target[5 : 5 + len(chosen)].tolist() == chosen
    assert not target[:5].any()
    assert not target[21:].any()


@pytest.mark.parametrize(("source", "target"), [(np.int32, np.int64), (np.int64, np.int64), (np.float32, np.float32)])
@pytest.mark.skipif(not HAS_COMPRESS, reason="only AVX-512 compresses other numbers than integers of 32 bits")
def test_compress_other_numbers(source: type, target: type) -> None:
    """Integers may become wider on the way; negative ones stay so."""
    values, out = np.arange(-30, 30).astype(source), np.zeros(40, target)
    for mask in (0, 1, 0x8000, 0xFFFF, 0b1000100000010011):
        out[:] = 0
        compress(values, 3, np.uint64(mask | 0xABC0000), out, 5)
        chosen = [values[3 + i] for i in range(16) if mask >> i & 1]
        assert out[5 : 5 + len(chosen)].tolist() == chosen
        assert not out[:5].any()
        assert not out[21:].any()


@hot
def places_of(columns: Any, codes: Any, event: int, stride: int, base: int, places: Any) -> Any:
    """As a kernel calls it."""
    return gather_rows(columns, 2, columns.size, stride, base, codes, event, places)


@pytest.mark.parametrize("n_columns", [1, 7, 8, 9, 40])
def test_rows_of_columns(n_columns: int) -> None:
    """Where an event's rows start, several columns at a time: two rows where a column is folded, none where the event has a list."""
    shift, bits_of, fold, row = (RNG.integers(0, most, n_columns) for most in (4, 9, 2, 2**31))
    column = RNG.permutation(50)[:n_columns]
    packed = column | shift << SHIFT_AT | bits_of << BITS_AT | fold << FOLD_AT | row << ROW_AT
    codes = RNG.integers(-1, 40, (3, 50)).astype(np.int32)
    stride, base = 36, 2**33
    wanted, lists = [], 0
    for i in range(n_columns):
        code = int(codes[1, column[i]])
        bucket = code >> int(shift[i]) & (1 << int(bits_of[i])) - 1
        rows = [int(row[i]), int(row[i]) + 1] if fold[i] > bucket else [int(row[i]) + bucket - int(fold[i])]
        wanted += [base + r * stride for r in rows] if code >= 0 else []
        lists += code < 0
    places = np.full(2 * n_columns + PLACES_PADDING, -7)
    count, found_lists = places_of(np.concatenate([[9, 9], packed]), codes, 1, stride, base, places)
    assert (count, found_lists) == (len(wanted), lists)
    assert sorted(places[:count].tolist()) == sorted(wanted)


@pytest.mark.parametrize(("count", "lanes"), [(count_16, 16), (count_4, 4), (count_1, 1)])
@pytest.mark.parametrize("n_rows", [1, 2, 5])
def test_count_rows(count: Any, lanes: int, n_rows: int) -> None:
    """Bits of the AND of rows, without the words to skip."""
    places = RNG.integers(0, 300, n_rows)
    for skip in {0, lanes // 2, lanes - 1}:
        rows = [WORDS[place + 7 + skip : place + 7 + lanes] for place in places]
        assert count(WORDS, places, 7, skip) == bits(np.bitwise_and.reduce(rows))


def test_count_both() -> None:
    """Bits of four words that a mask has too."""
    assert count_both(WORDS, 3, WORDS[50:], 11) == bits(WORDS[3:7] & WORDS[61:65])


@hot
def find(guards: Any, first: int, end: int, own: Any) -> Any:
    """As a kernel calls it."""
    return find_guarded(guards, first, end, own)


def expected_guards(guards: Any, own: Any) -> tuple[int, int]:
    """What `find_guarded` says, guard by guard."""
    found = sure = 0
    for bit, guard in enumerate(guards.tolist()):
        bucket, low, high = own.tolist()[guard & 0x7FFF], guard >> 16 & 255, guard >> 24 & 255
        place = bucket & 255
        inside = low <= place <= high or (low > high and (place >= low or 0 < place <= high))
        decides = guard >> 15 & 1 and (place not in (low, high) or bucket & SINGLE)
        found |= inside << bit
        sure |= bool(inside and decides) << bit
    return found, sure


@pytest.mark.parametrize("size", [1, 7, 8, 9, 15, 16, 17, 63, 64])
def test_guards_of_a_word(size: int) -> None:
    """Also 8 or 16 at a time, with a rest; some go round, some events have NULL. Events with lists go another way."""
    for _ in range(40):
        guards = RNG.integers(0, 2**32, size, np.uint32) & np.uint32(0xFFFF8007)
        own = np.zeros(LEAST_OWN, np.int32)
        own[:8] = RNG.integers(0, 2 * SINGLE, 8) * RNG.integers(0, 2, 8)
        stored = np.concatenate((RNG.integers(0, 8, 3), guards.view(np.int32))).astype(np.int32)
        assert tuple(map(int, find(stored, 3, 3 + size, own))) == expected_guards(guards, own)


def test_trailing_zeros() -> None:
    """The lowest bit, 64 where there is none."""
    assert [lowest(np.uint64(word)) for word in (0, 1, 40, 2**63)] == [64, 0, 3, 63]


@hot
def total(given: Any, more: Any) -> Any:
    """The sum of some numbers."""
    found = more
    for number in given[0]:
        found += number
    return found


def test_direct_calls_know_the_types_of_their_arguments():
    """The code for other types is other code; read-only arrays may be given for others and the other way round."""
    longs, floats = np.arange(5), np.arange(5) / 2
    assert direct(total, (frozen(longs),), 1)((longs,), 2) == 12
    assert direct(total, (longs,), 1)((frozen(longs),), 2) == 12
    assert direct(total, (floats,), 1.0)((floats,), 0.25) == 5.25
    assert direct(total, (longs,), 1)((longs,), 3) == 13


#: Releases of Numba that `kernels/jit.py` and `kernels/kept.py` were tried with: `_nrt` and the code generator may change without notice.
TRIED = ("0.68",)


def test_numba_is_a_release_that_was_tried():
    """Another release needs a run of all tests and of `wherecast bench run --group floor`, and then its place in this list."""
    assert numba.__version__.rsplit(".", 1)[0] in TRIED
    declared = next(d for d in tomllib.loads(PYPROJECT.read_text())["project"]["dependencies"] if d.startswith("numba"))
    major, minor = max(tuple(map(int, tried.split("."))) for tried in TRIED)
    assert declared.endswith(f"<{major}.{minor + 1}"), "the upper bound is the first release that was not tried"


def test_private_parts_of_numba_are_used_in_two_modules():
    """A change in Numba is felt where kernels are compiled and where their code is kept, and nowhere else."""
    private = re.compile(r"_nrt\b|cgutils|intrinsic\b|llvmlite|numba\.core|import numba\b|from numba")
    package = PYPROJECT.parent / "src" / "wherecast"
    users = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if any(private.search(line.split("#")[0]) for line in path.read_text(encoding="utf-8").splitlines())
    }
    assert users == {"kernels/jit.py", "kernels/kept.py"}


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
def test_a_function_that_stays_apart_is_not_inlined():
    """LLVM is told so."""

    @numba.njit
    def doubled(x: Any) -> Any:
        stay_apart()
        return 2 * x

    assert doubled(21) == 42
    (code,) = doubled.inspect_llvm().values()
    assert "noinline" in code


def test_compiled_code_is_kept_until_its_source_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source of a kernel is its module and all that this imports; other modules do not matter."""
    texts = {"__init__": "", "low": "WIDTH = 4\n", "middle": "from pack.low import WIDTH\n", "other": "A = 1\n"}
    texts["high"] = (
        "from pack.middle import WIDTH\nfrom wherecast.kernels.jit import hot\n\n\n@hot\ndef width():\n    return WIDTH\n"
    )
    (tmp_path / "pack").mkdir()
    monkeypatch.syspath_prepend(tmp_path)

    def stamp(**changed: str) -> str:
        for name, text in (texts | changed).items():
            (tmp_path / "pack" / f"{name}.py").write_text(text)
        for name in [name for name in sys.modules if name.partition(".")[0] == "pack"]:
            del sys.modules[name]
        source_stamp.cache_clear()
        importlib.invalidate_caches()
        kernel = importlib.import_module("pack.high").width
        if not numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
            assert kernel._cache._cache_file._source_stamp == source_stamp("pack.high")
        return source_stamp("pack.high")

    first = stamp()
    assert stamp(other="A = 22\n") == first
    assert stamp(low="WIDTH = 8\n") != first
    assert stamp(high=texts["high"] + "# more\n") != first
    assert stamp() == first


@pytest.mark.slow
@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")  # type: ignore[attr-defined]
def test_kept_code_is_loaded_without_what_compiling_needs(tmp_path: Path) -> None:
    """A process that finds its code does not import Numba's compiler of arrays, nor compile its runtime.

    One that then compiles a caller of it does, and may.
    """
    (tmp_path / "doubling.py").write_text(
        "import numpy as np\nfrom wherecast.kernels.jit import jit\n\n\n"
        "@jit\ndef twice(values):\n    return values * 2\n\n\n"
        "@jit\ndef four_times(values):\n    return twice(twice(values))\n"
    )
    compilers = "import sys; from numba.core.runtime.nrt import rtsys; print('numba.np.arraymath' in sys.modules, rtsys._init, end=' ')"
    parts = ["import numpy as np, doubling", "print(*doubling.twice(np.arange(3)), end=' ')", compilers]
    calling = [*parts, "print(*doubling.four_times(np.arange(3)), end=' ')", compilers]
    said = [
        subprocess.run(
            [sys.executable, "-c", "; ".join(script)],
            capture_output=True, text=True, check=True, cwd=tmp_path, env={**os.environ, "NUMBA_CACHE_DIR": ""},
        ).stdout.split()
        for script in (parts, parts, calling, calling)
    ]  # fmt: skip
    twice, four_times = ["0", "2", "4"], ["0", "4", "8"]
    yes, no = ["True", "True"], ["False", "False"]
    assert said[0] == [*twice, *yes]
    assert said[1] == [*twice, *no]
    assert said[2] == [*twice, *no, *four_times, *yes]
    assert said[3] == [*twice, *no, *four_times, *no]


@pytest.mark.slow
@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")  # type: ignore[attr-defined]
def test_filters_are_loaded_without_modules_of_numba() -> None:
    """Kept code names the modules whose functions it contains, and Numba imports them: `in` and sums of arrays would cost each process that."""
    script = """if True:
        import sys
        from wherecast import Engine
        texts = {n: " OR ".join(f"a{m} LIKE '%w{n}%' AND n > {m}" for m in range(n % 90)) + " AND NOT a = 'x'" for n in range(1, 600)}
        texts |= {n: f"n = {n} AND (a LIKE 'b{n}%' OR a{n % 90} = '{n}')" for n in range(600, 3000)}
        engine = Engine({"a": "string", "n": "long", **{f"a{m}": "string" for m in range(90)}})
        before = set(sys.modules)
        engine.subscribe_many({n: text.removeprefix(" AND ") for n, text in texts.items()})
        print(*sorted(name for name in set(sys.modules) - before if name.startswith("numba")))
    """
    for _ in range(2):  # the first may have to compile
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@jit
def spin(turns: int) -> Any:
    """So many turns, and two arrays."""
    found = np.full(1, turns)
    for turn in range(turns):
        found[0] += (turn * found[0]) ^ (found[0] >> 3)
    return found, found


@pytest.mark.slow
def test_an_interrupt_during_a_kernel_is_an_interrupt() -> None:
    """And no SystemError of Numba's, which does not look for it while it makes the result an object."""
    assert len(spin(1)) == 2
    before = signal.signal(signal.SIGVTALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.05)  # of processor time
        with pytest.raises(KeyboardInterrupt):
            spin(100_000 if numba.config.DISABLE_JIT else 300_000_000)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
