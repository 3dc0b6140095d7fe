"""Logs as JSON lines, without private values: only fields that are listed here are ever written.

A record says what happened (`message`, a fixed text) and, in `extra`, public details. Arguments of a message are not
written, since anything could be in them.
"""

from __future__ import annotations

import json
import logging
import sys
from collections import OrderedDict
from datetime import UTC, datetime
from typing import IO

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

# How many different events are remembered, to say each once.
_REMEMBERED = 1000


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
    """Let a refusal through once for each reason, so that a flood does not fill the disk."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: OrderedDict[tuple[object, ...], None] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether this is the first of its kind, for what was refused; everything else passes."""
        if record.msg != "refused":
            return True
        event = (record.name, record.__dict__.get("game"), record.__dict__.get("kind"), record.__dict__.get("reason"))
        if event in self._seen:
            return False
        self._seen[event] = None
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        return True


def set_up(level: int = logging.INFO, stream: IO[str] | None = None) -> logging.Handler:
    """Write palmatch's logs as JSON lines to the stream (standard error); return the handler."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    handler.addFilter(OnceFilter())
    logger = logging.getLogger("palmatch")
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False
    return handler
