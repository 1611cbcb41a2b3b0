"""Compiling filters on several cores.

Theory of operation
-------------------
Cutting texts and reading literals is Python's work and holds the interpreter's lock, so threads do not help. Other
processes do: each compiles some parts of the texts, and this one compiles parts, too. A part goes over as a list of texts and
comes back as flat arrays, about 100 bytes a filter.

The processes are interpreters of their own, started for one call. They are not forked: a fork of a process with threads may
hang. They do not import the caller's main module, as `multiprocessing` would: a script without `if __name__ == "__main__"` works. They
end when their standard input does, so none outlives its parent, and Ctrl-C reaches the parent only, which ends them.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import IO, Any, TypeVar

from wherecast.language.filters.compile import Compiled, Compiler

_START = "import sys; sys.path[:] = {path!r}; from wherecast.engine.processes import serve; serve()"


class CompileProcess:
    """Another process, which compiles texts as a given compiler does."""

    def __init__(self, compiler: Compiler) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-c", _START.format(path=sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is the parent's
        )
        self._setting = compiler.schema, compiler.limits, compiler.case_sensitive
        self._is_set = False

    def compile_many(self, texts: Sequence[Any]) -> Compiled:
        """As `Compiler.compile_many`, with the errors that it raises."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            if not self._is_set:
                _send(process.stdin, self._setting)
                self._is_set = True
            _send(process.stdin, texts)
            found = pickle.load(process.stdout)  # noqa: S301 - of our own process
        except (OSError, EOFError, pickle.UnpicklingError):
            code = process.wait()
            raise RuntimeError(
                f"a process that compiled filters ended with code {code}; if memory was short, use fewer processes"
            ) from None
        if isinstance(found, Exception):
            raise found
        assert isinstance(found, Compiled)
        return found

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):  # what it did not read
                if pipe is not None:
                    pipe.close()


Kept = TypeVar("Kept")


def compile_on(
    compiler: Compiler,
    parts: Sequence[Any],
    processes: int,
    keep: Callable[[Compiled], Kept],
    done: Callable[[int], None],
) -> list[Kept]:
    """What is kept of parts of texts, compiled on so many processes, of which this is one. `done` is called with the number of each."""
    waiting, found = _Numbers(len(parts)), dict[int, Kept]()
    failures, finishing = list[Exception](), threading.Lock()

    def work(compile_many: Callable[[Sequence[Any]], Compiled]) -> None:
        for number in waiting:
            found[number] = keep(compile_many(parts[number]))
            with finishing:
                done(number)

    def work_beside(other: CompileProcess) -> None:
        try:
            work(other.compile_many)
        except Exception as error:  # noqa: BLE001 - raised again in the caller's thread
            failures.append(error)
            waiting.stop()

    with ExitStack() as stack:
        threads: list[threading.Thread] = []
        stack.callback(_join, threads)
        for _ in range(min(processes, len(parts)) - 1):
            other = CompileProcess(compiler)
            stack.callback(other.close)  # before the joins: a thread that reads from it ends with it
            threads.append(threading.Thread(target=work_beside, args=(other,), daemon=True))
            threads[-1].start()
        stack.callback(waiting.stop)
        work(compiler.compile_many)
        _join(threads)
    if failures:
        raise failures[0]
    return [found[number] for number in range(len(parts))]


def _join(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        thread.join()


class _Numbers(Iterator[int]):
    """Numbers from 0 on that several threads share, until somebody stops them."""

    def __init__(self, n: int) -> None:
        self._left = iter(range(n))
        self._lock = threading.Lock()

    def __next__(self) -> int:
        with self._lock:
            return next(self._left)

    def stop(self) -> None:
        with self._lock:
            self._left = iter(range(0))


def _send(pipe: IO[bytes], what: object) -> None:
    pickle.dump(what, pipe, 5)
    pipe.flush()


def serve() -> None:
    """The other process: a compiler's settings come in, then lists of texts, until there are no more; filters go out."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # nothing else may write between the answers
    with suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        schema, limits, case_sensitive = pickle.load(source)  # noqa: S301 - from our parent
        compiler = Compiler(schema, limits, case_sensitive=case_sensitive)
        while True:
            texts = pickle.load(source)  # noqa: S301
            try:
                answer: Compiled | Exception = compiler.compile_many(texts)
            except Exception as error:  # noqa: BLE001 - the parent raises it
                answer = error
            _send(sink, answer)
