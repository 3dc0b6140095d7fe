"""Run a program that ends when the standard input does, and with it when the process that started this one is gone.

A script of its own, on the standard library alone: it writes the program's number, and ends as the program ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence

_PATIENCE_SECONDS = 3.0


def main(command: Sequence[str]) -> int:
    """Run a command."""
    program = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    sys.stdout.write(f"{program.pid}\n")
    sys.stdout.flush()

    def wait() -> None:
        while os.read(0, 4096):
            continue
        program.terminate()
        try:
            program.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            program.kill()

    threading.Thread(target=wait, daemon=True).start()
    return program.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
