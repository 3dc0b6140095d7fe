"""The command as the tests run it."""

import contextlib
import io
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from palmatch.cli import COMMANDS, main, subcommand


@dataclass(frozen=True)
class Result:
    returncode: int
    stdout: str
    stderr: str


def command_words() -> list[tuple[str, ...]]:
    """Return what can be typed after `palmatch`: ("match",), ("ledger", "show") and so on."""
    under = {name: getattr(subcommand(name), "commands", None) for name in COMMANDS}
    return [(name, *word) for name, found in under.items() for word in ([()] if found is None else zip(found))]


def run(*words: object, folder: Path, encoding: str = "utf-8") -> Result:
    """Run the command in this process: what a user sees, without the seconds that an interpreter takes to start."""
    stdout, stderr = (io.TextIOWrapper(io.BytesIO(), encoding, newline="\n") for _ in range(2))
    status = 0
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
        mock.patch.object(sys, "argv", ["palmatch", *map(str, words)]),
    ):
        try:
            main()
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    told = []
    for stream in (stdout, stderr):
        stream.seek(0)
        told.append(stream.read())
    return Result(status, *told)


def run_line(*words: object, folder: Path, encoding: str = "utf-8") -> Result:
    """Run the command as it is typed: texts are split as a shell does, everything else is one word."""
    return run(*split(words), folder=folder, encoding=encoding)


def split(words: Sequence[object]) -> list[str]:
    """Return the words of a command line whose texts hold several each."""
    parts = (shlex.split(word) if isinstance(word, str) else [str(word)] for word in words)
    return [word for several in parts for word in several]
