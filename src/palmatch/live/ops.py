"""What running takes: the event loop, logs, metrics, and what processes use. Nothing here knows of games.

Logs are JSON lines without private values: only fields that are listed here are ever written, with a fixed text of
what happened. Metrics are in Prometheus' text format; their labels are roles, kinds and reasons: never a region or a
tag. The event loop is uvloop's where it is installed, and the standard library's elsewhere.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, TypeVar

from palmatch.errors import InputError

# Public by their nature: none of them is about one agent's position, report, tag or key.
PUBLIC_FIELDS = (
    "game",
    "kind",
    "role",
    "reason",
    "count",
    "slot",
    "slots",
    "matched",
    "agents",
    "resources",
    "seconds",
)

# Lines a minute about what went wrong, whatever the reasons: there are some forty.
_MOST_LINES = 200
# Whose records are written: the runtime's own, and those of the HTTP server, which says what clients do wrong.
_LOGGERS = ("palmatch", "uvicorn")


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's time, level, logger, text and public fields."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": str(record.msg),
        }
        for name in PUBLIC_FIELDS:
            if name in record.__dict__:
                value = record.__dict__[name]
                line[name] = value if isinstance(value, int | float | bool) else str(value)[:300]
        if record.exc_info and record.exc_info[0] is not None:
            # The kind of the exception; its text may hold anything.
            line["exception"] = record.exc_info[0].__name__
        return json.dumps(line, ensure_ascii=False)


class OnceFilter(logging.Filter):
    """Let a warning through once a minute for each reason, so that a flood does not fill the disk.

    Numbers do not make another reason: a client chooses sizes and versions.
    """

    def __init__(self) -> None:
        super().__init__()
        self._minute = 0
        self._seen: set[tuple[object, ...]] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether this is the first of its kind in this minute; what has no reason and is no warning passes."""
        reason = record.__dict__.get("reason")
        if reason is None and record.levelno < logging.WARNING:
            return True
        if self._minute != (minute := int(record.created // 60)):
            self._minute = minute
            self._seen.clear()
        event = (record.name, record.msg, record.__dict__.get("kind"), re.sub(r"[0-9,.]+", "0", str(reason)))
        if event in self._seen or len(self._seen) >= _MOST_LINES:
            return False
        self._seen.add(event)
        return True


def set_up(level: int = logging.INFO, stream: IO[str] | None = None) -> logging.Handler:
    """Write palmatch's logs as JSON lines to the stream (standard error); return the handler."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    handler.addFilter(OnceFilter())
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel(level if name == "palmatch" else logging.WARNING)
        logger.propagate = False
    return handler


_HELP = {
    "palmatch_connections": ("gauge", "Open connections by role."),
    "palmatch_received_total": ("counter", "Packets received by kind of message."),
    "palmatch_received_bytes_total": ("counter", "Bytes of packets received."),
    "palmatch_delivered_total": ("counter", "Packets delivered to subscribers."),
    "palmatch_delivered_bytes_total": ("counter", "Bytes of packets delivered."),
    "palmatch_refused_total": ("counter", "Refused requests by reason."),
    "palmatch_games_total": ("counter", "Games that ended, by outcome."),
    "palmatch_agents_matched_total": ("counter", "Agents that got a resource."),
    "palmatch_accepted_total": ("counter", "Joins, reports, bids and claims that the board accepted, by kind."),
    "palmatch_phase_seconds": ("gauge", "When each phase of the last game ended, in seconds after its opening."),
}


class Metrics:
    """Numbers by name and labels."""

    def __init__(self) -> None:
        self._values: defaultdict[tuple[str, tuple[tuple[str, str], ...]], float] = defaultdict(float)

    def add(self, name: str, amount: float, **labels: str) -> None:
        """Add to a number; only the names that are listed here exist."""
        if name not in _HELP:
            raise KeyError(name)
        self._values[name, tuple(sorted(labels.items()))] += amount

    def set(self, name: str, amount: float, **labels: str) -> None:
        """Set a number."""
        self.add(name, amount - self.value(name, **labels), **labels)

    def value(self, name: str, **labels: str) -> float:
        """Return a number."""
        return self._values.get((name, tuple(sorted(labels.items()))), 0.0)

    def text(self) -> str:
        """Return all numbers in Prometheus' text format, version 0.0.4."""
        lines = []
        for name, (kind, sentence) in _HELP.items():
            lines += [f"# HELP {name} {sentence}", f"# TYPE {name} {kind}"]
            for (found, labels), value in sorted(self._values.items()):
                if found == name:
                    inner = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
                    lines.append(f"{name}{{{inner}}} {value:g}" if inner else f"{name} {value:g}")
        return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@dataclass(frozen=True, slots=True)
class Usage:
    """Processor time in seconds since a process began, and its memory now and at most, in megabytes."""

    processor: float
    megabytes: float
    peak: float


def usage_of(process: int) -> Usage | None:
    """Return what a process has used, or None where that is not known."""
    folder = Path("/proc") / str(process)
    try:
        times = (folder / "stat").read_text().rsplit(")", 1)[1].split()[11:13]
        facts = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line)
    except OSError:
        return None
    memory = [int(facts[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM") if name in facts]
    if len(memory) != 2:
        return None
    return Usage(sum(map(int, times)) / os.sysconf("SC_CLK_TCK"), *memory)


def files_allowed() -> int:
    """Return how many files this process may have open."""
    if os.name != "posix":
        return sys.maxsize
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def allow_files(count: int = 0) -> None:
    """Raise this process's limit of open files as far as the system allows; refuse if that is not enough.

    Its children get the limit too. A limit of 1,024, as is usual, would be a limit of a thousand devices.
    """
    if os.name != "posix":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY in (soft, hard):
        return
    if count > hard:
        raise InputError(
            f"So many connections need {count:,} open files, and this system allows {hard:,} (`ulimit -Hn`): "
            "raise its limit, or ask for fewer agents."
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


new_loop: Callable[[], asyncio.AbstractEventLoop] | None
try:
    from uvloop import new_event_loop as new_loop
except ImportError:
    new_loop = None

_Value = TypeVar("_Value")

# After how many new objects garbage is searched for, and after how many such searches among older ones.
_NEW_OBJECTS, _YOUNG = 50_000, 20


def run(program: Coroutine[Any, Any, _Value]) -> _Value:
    """Run a program to its end, as `asyncio.run` does."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(program)


def steady(clock: Callable[[], float]) -> Callable[[], float]:
    """Return a clock that begins with the time of another one and goes on steadily, however that one is set."""
    loop = asyncio.get_running_loop()
    began = clock() - loop.time()
    return lambda: began + loop.time()


def settle() -> None:
    """Leave what is there now out of the search for garbage: it stays, and to look through it again takes seconds.

    What comes later is searched less often than the standard library does: a tenth of the time of thousands of devices.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, _YOUNG, _YOUNG)
