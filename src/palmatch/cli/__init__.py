"""The command: one module for each of its words.

A user's mistake ends in one sentence on the standard error and exit status 2, never in a traceback.
"""

from __future__ import annotations

import os
import sys
from errno import ENOSPC
from io import StringIO

from palmatch.cli.app import app
from palmatch.errors import PalmatchError

# What a shell says of a program that was ended by SIGPIPE.
_NOBODY_READS = 141


def main() -> None:
    """Run the command."""
    if sys.stdout is None:
        # The output was closed before we began (`>&-`).
        sys.stdout = StringIO()
    try:
        _run()
    except PalmatchError as mistake:
        sys.stderr.write(f"palmatch: {mistake}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write("palmatch: stopped.\n")
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output (head, say) has gone, and nobody is left to tell.
        _drop_output()
        sys.exit(_NOBODY_READS)
    except OSError as error:
        if error.errno != ENOSPC:
            raise
        _drop_output()
        where = error.filename or "the output"
        sys.stderr.write(f"palmatch: {where}: cannot be written ({error.strerror}); make room, and try again.\n")
        sys.exit(2)


def _drop_output() -> None:
    """Let what is still in the buffer go nowhere, or the interpreter would complain about it on its way out."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run() -> None:
    """Run the words, and hand out every letter while somebody can still be told that it did not arrive."""
    try:
        app()
    except SystemExit as stop:
        # The libraries for words and tables turn a reader who has gone into a plain failure.
        if isinstance(stop.__context__, BrokenPipeError):
            raise stop.__context__ from None
        raise
    finally:
        sys.stdout.flush()
