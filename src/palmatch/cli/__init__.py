"""The command: one module for each of its subcommands.

A user's mistake ends in one sentence on the standard error and exit status 2, never in a traceback; Ctrl-C ends in one
line and status 130.
"""

from __future__ import annotations

import gc
import os
import sys

# What a shell says of a program that was ended by SIGPIPE, and by Ctrl-C.
_NOT_READ, _INTERRUPTED = 141, 130

# New objects after which Python looks for cycles: usually 700, which is a seventh of the time of compiling kernels.
_OBJECTS = 50_000


def main() -> None:
    """Run the command."""
    gc.set_threshold(_OBJECTS)
    # Threads that OpenBLAS starts for products of matrices, of which there are few, take a fifth of a second to begin.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        _run()
    except KeyboardInterrupt as interrupt:
        _end(" ".join(["palmatch: stopped.", *map(str, interrupt.args)]) + "\n", _INTERRUPTED)


def _run() -> None:
    from palmatch.cli.app import app
    from palmatch.cli.show import prepare_streams
    from palmatch.errors import PalmatchError

    try:
        with prepare_streams():
            try:
                app()
            except SystemExit as stop:
                _raise_what_ended_it(stop)
                raise
            finally:
                # While a failure can still be reported.
                sys.stdout.flush()
    except PalmatchError as mistake:
        _end(f"palmatch: {mistake}\n", 2)
    except BrokenPipeError:
        # The reader of our output (head, say) has gone.
        _drop_output()
        sys.exit(_NOT_READ)
    except OSError as error:
        _drop_output()
        reason, where = error.strerror or type(error).__name__, error.filename or "the output"
        _end(f"palmatch: {where}: cannot be written ({reason}); check the path and the free space.\n", 2)
    except MemoryError:
        _end("palmatch: this takes more memory than there is; bound the lists with --interest 20, or match less.\n", 2)


def _raise_what_ended_it(stop: BaseException | None) -> None:
    """Raise the Ctrl-C, or the error of a reader who has gone, that typer and rich have made an exit of."""
    while stop is not None:
        if isinstance(stop, BrokenPipeError | KeyboardInterrupt):
            raise stop from None
        stop = stop.__cause__ or stop.__context__


def _end(line: str, status: int) -> None:
    sys.stderr.write(line)
    sys.exit(status)


def _drop_output() -> None:
    """Discard what is still in the buffer, or the interpreter would report it when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
