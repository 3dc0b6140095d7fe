from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from palmatch.live.logs import set_up
from palmatch.live.metrics import Metrics


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    handler = set_up(stream=stream)
    yield stream
    logger = logging.getLogger("palmatch")
    logger.removeHandler(handler)
    logger.propagate = True
    logger.setLevel(logging.NOTSET)


def test_logs_are_json_lines_with_public_fields_only(stream: io.StringIO) -> None:
    log = logging.getLogger("palmatch.live.board")
    log.info("game over", extra={"game": "g", "matched": 3, "position": (40.7, -74.0), "tag": b"secret"})
    log.info("joined %s", "alice at 40.7")
    try:
        raise ValueError("alice at 40.7")
    except ValueError:
        log.exception("failed")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["event"], line["level"]) for line in lines] == [
        ("game over", "info"),
        ("joined %s", "info"),
        ("failed", "error"),
    ]
    assert (lines[0]["game"], lines[0]["matched"], lines[2]["exception"]) == ("g", 3, "ValueError")
    for secret in ("alice", "40.7", "secret"):
        assert secret not in stream.getvalue()


def test_a_flood_of_refusals_is_logged_once(stream: io.StringIO) -> None:
    log = logging.getLogger("palmatch.live.hub")
    for _ in range(1000):
        log.warning("refused", extra={"reason": "too many"})
    log.warning("refused", extra={"reason": "too large"})
    assert len(stream.getvalue().splitlines()) == 2


def test_metrics_have_the_format_of_prometheus() -> None:
    metrics = Metrics()
    metrics.add("palmatch_refused_total", 2, reason='a "b"\n')
    metrics.add("palmatch_delivered_total", 1)
    text = metrics.text()
    assert "# TYPE palmatch_refused_total counter\n" in text
    assert 'palmatch_refused_total{reason="a \\"b\\"\\n"} 2\n' in text
    assert "palmatch_delivered_total 1\n" in text
    with pytest.raises(KeyError):
        metrics.add("unlisted", 1)
