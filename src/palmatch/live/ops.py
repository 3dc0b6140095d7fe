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
import signal
import sys
import tomllib
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Literal, TypeVar

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


_NUMBERS = tomllib.loads(Path(__file__).with_name("metrics.toml").read_text(encoding="utf-8"))
_BUCKETS = (0.5, 1, 2, 5, 10, 15, 20, 30, 45, 60, 120, 300, 600)


class Metrics:
    """Counts nothing, for games that are not watched."""

    def add(self, name: str, amount: float = 1.0, **labels: str) -> None:
        """Add to a number; only the names that are listed here exist."""

    def observe(self, name: str, amount: float, **labels: str) -> None:
        """Add to a distribution."""


class PrometheusMetrics(Metrics):
    """Numbers by name and labels, as Prometheus reads them."""

    def __init__(self) -> None:
        import prometheus_client as prometheus

        prometheus.disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = prometheus.CollectorRegistry()
        self._numbers: dict[str, Any] = {
            name: getattr(prometheus, kind)(
                name, sentence, labels, registry=self.registry, **({"buckets": _BUCKETS} if kind == "Histogram" else {})
            )
            for name, (kind, sentence, labels) in _NUMBERS.items()
        }
        # Looked up once for each combination of labels: some are counted for every packet.
        self._found: dict[tuple[str, ...], Any] = {}

    def add(self, name: str, amount: float = 1.0, **labels: str) -> None:
        """Add to a number."""
        self._of(name, labels).inc(amount)

    def observe(self, name: str, amount: float, **labels: str) -> None:
        """Add to a distribution."""
        self._of(name, labels).observe(amount)

    def _of(self, name: str, labels: dict[str, str]) -> Any:
        key = (name, *labels.values())
        if key not in self._found:
            number = self._numbers[name]
            self._found[key] = number.labels(**labels) if labels else number
        return self._found[key]

    def value(self, name: str, **labels: str) -> float:
        """Return a number; of a distribution there are `_sum` and `_count`."""
        return self.registry.get_sample_value(name, labels) or 0.0

    def text(self) -> bytes:
        """Return all numbers in Prometheus' text format."""
        from prometheus_client import generate_latest

        return generate_latest(self.registry)


def allow_files(count: int = 0) -> int:
    """Raise this process's limit of open files as far as the system allows, and return it; refuse less than `count`.

    Its children get the limit too. A limit of 1,024, as is usual, would be a limit of a thousand devices.
    """
    if os.name != "posix":
        return sys.maxsize
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY in (soft, hard):
        return sys.maxsize if soft == resource.RLIM_INFINITY else soft
    if count > hard:
        raise InputError(
            f"So many connections need {count:,} open files, and this system allows {hard:,} (`ulimit -Hn`): "
            "raise its limit, or ask for fewer agents."
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


new_loop: Callable[[], asyncio.AbstractEventLoop] | None
try:
    from uvloop import new_event_loop as new_loop
except ImportError:
    new_loop = None

_Value = TypeVar("_Value")


def on_signal(name: Literal["SIGTERM", "SIGHUP"], action: Callable[[], object]) -> None:
    """Call this on a signal, where the system has it."""
    with suppress(NotImplementedError, AttributeError):
        asyncio.get_running_loop().add_signal_handler(getattr(signal, name), action)


async def until_told(work: Coroutine[Any, Any, None], settled: asyncio.Event | None = None) -> None:
    """Run a service until it ends, or until SIGTERM: then it ends as soon as it is `settled`."""
    task, told = asyncio.create_task(work), asyncio.Event()
    on_signal("SIGTERM", told.set)
    # Where there is no certificate to read again, a reload must not end the service.
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        on_signal("SIGHUP", lambda: None)
    leaving = asyncio.create_task(told.wait())
    await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
    leaving.cancel()
    if not task.done():
        if settled is not None:
            await settled.wait()
        task.cancel()
    with suppress(asyncio.CancelledError):
        await task


# After how many new objects garbage is searched for, and after how many such searches among older ones.
_NEW_OBJECTS, _YOUNG = 50_000, 20


def run(program: Coroutine[Any, Any, _Value]) -> _Value:
    """Run a program to its end, as `asyncio.run` does."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(program)


class Tasks:
    """What runs beside its owner; the event loop alone would not keep it."""

    def __init__(self) -> None:
        self.running: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run it."""
        task = asyncio.get_running_loop().create_task(work)
        self.running.add(task)
        task.add_done_callback(self.running.discard)
        return task

    def cancel(self) -> None:
        """End all of it."""
        for task in self.running:
            task.cancel()


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
