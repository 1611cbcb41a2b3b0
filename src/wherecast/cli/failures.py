"""How a command ends: exit codes, and one place where errors become messages.

0: done. 1: the input was refused (a bad filter, a bad event, a file that cannot be read as what it should be).
2: the command was called wrongly (an unknown option, a missing file, an unreadable schema, an unknown matcher).
130: interrupted. 141: whoever read the output went away, as for any program that writes into a closed pipe.
"""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import suppress
from typing import Any

import typer
from typer.core import TyperGroup

from wherecast.cli.report import say_error
from wherecast.errors import FilterError, SchemaError, WherecastError

REFUSED = 1
USAGE = 2
INTERRUPTED = 130
CLOSED_PIPE = 141


class CommandError(Exception):
    """A command that cannot go on; the message is all the user needs."""

    def __init__(self, message: str, code: int = REFUSED) -> None:
        super().__init__(message)
        self.code = code


def usage_error(message: str) -> CommandError:
    """The command was called wrongly."""
    return CommandError(message, USAGE)


class GuardedGroup(TyperGroup):
    """A group of commands whose errors end as a message and an exit code, never as a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except CommandError as error:
            code = _fail(str(error), error.code)
        except FilterError as error:
            code = _fail(error, REFUSED)
        except WherecastError as error:
            code = _fail(str(error), USAGE if isinstance(error, SchemaError) else REFUSED)
        except KeyboardInterrupt:
            code = _fail("interrupted", INTERRUPTED)
        except BrokenPipeError:
            code = _forget_stdout()
        except OSError as error:
            code = _fail(f"{error.filename or 'the system'}: {error.strerror or error}", REFUSED)
        except MemoryError:
            code = _fail("out of memory; use fewer subscriptions at a time", REFUSED)
        except Exception as error:
            if isinstance(error, typer.Exit) or _has_exit_code(error):  # typer's own: Exit, Abort, usage errors
                raise
            if os.environ.get("WHERECAST_DEBUG"):
                traceback.print_exc()
            text = f"internal error: {type(error).__name__}: {error}; please report it (WHERECAST_DEBUG=1 shows where)"
            code = _fail(text, REFUSED)
        raise typer.Exit(code)


def _fail(error: FilterError | str, code: int) -> int:
    say_error(error)
    return code


def _has_exit_code(error: Exception) -> bool:
    return hasattr(error, "exit_code") or isinstance(error, typer.Abort)


def _forget_stdout() -> int:
    """Nobody reads the output any more: keep the interpreter from complaining when it flushes at exit."""
    with suppress(OSError, ValueError):  # a stand-in has no file descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return CLOSED_PIPE
