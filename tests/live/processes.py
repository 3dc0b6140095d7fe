"""The command in processes of its own, as terminals of a user."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def started(*words: object, folder: Path, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """The command in a process of its own, ended when the test is over."""
    command = [sys.executable, "-c", "from palmatch.cli import main; main()", *map(str, words)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"} | variables
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.wait()


def party(*words: object, folder: Path) -> AbstractContextManager[subprocess.Popen[str]]:
    """A subcommand of `palmatch live` in a process of its own."""
    return started("live", *words, folder=folder)


def line_of(process: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    """Return the first line on the process's output that fits."""
    assert process.stdout is not None
    assert process.stderr is not None
    for line in process.stdout:
        if found := re.search(pattern, line):
            return found
    raise AssertionError(process.stderr.read())
