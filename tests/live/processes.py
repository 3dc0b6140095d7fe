"""The command in processes of its own, as terminals of a user."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PALMATCH = [sys.executable, "-c", "from palmatch.cli import main; main()"]


@contextmanager
def started(*words: object, folder: Path, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """The command in a process of its own, ended when the test is over."""
    command = [*PALMATCH, *map(str, words)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"} | variables
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            # A board that is told to stop finishes its slot first, which no test waits for.
            process.terminate()
            try:
                process.wait(timeout=1)
            except subprocess.TimeoutExpired:
                process.kill()
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


class Service:
    """A program whose output is one JSON object on each line, and nothing else."""

    def __init__(self, command: Sequence[str], folder: Path, **variables: str) -> None:
        environment = os.environ | {"PYTHONPATH": str(ROOT / "src")} | variables
        self.log = (folder / "log").open("ab")
        self.process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=self.log, text=True
        )
        self.events: list[dict[str, Any]] = []
        self._came = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._came:
                self.events.append(json.loads(line))
                self._came.notify_all()

    def wait(self, event: str, after: int = 0, seconds: float = 60) -> dict[str, Any]:
        """Return the first event of a name, not counting so many of it."""

        def found() -> list[dict[str, Any]]:
            return [one for one in self.events if one["event"] == event][after:]

        with self._came:
            assert self._came.wait_for(found, seconds), (event, self.events)
            return found()[0]

    def count(self, event: str) -> int:
        return sum(one["event"] == event for one in self.events)

    def stop(self) -> int:
        # systemd has waited as long for a service that it has just started.
        with self._came:
            assert self._came.wait_for(lambda: self.events, 60)
        self.process.send_signal(signal.SIGTERM)
        return self.close()

    def close(self) -> int:
        """Wait for its end."""
        status = self.process.wait(120)
        self._reader.join(60)
        self.process.stdout.close()
        self.log.close()
        return status
