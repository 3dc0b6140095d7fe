"""The command: one module for each of its words.

A user's mistake ends in one sentence on the standard error and exit status 2, never in a traceback.
"""

from __future__ import annotations

import sys

from palmatch.cli.app import app
from palmatch.errors import PalmatchError


def main() -> None:
    """Run the command."""
    try:
        app()
    except PalmatchError as mistake:
        sys.stderr.write(f"palmatch: {mistake}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write("palmatch: stopped.\n")
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output (head, say) has gone; there is nobody left to tell.
        sys.stderr.close()
        sys.exit(141)
