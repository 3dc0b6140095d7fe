import asyncio
import io
import json
import logging
from urllib.parse import quote

import cbor2
import pytest
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from palmatch.live.issuer import Issuer
from palmatch.live.keys import Signer
from palmatch.live.ops import set_up
from palmatch.live.transport import Hub
from palmatch.live.transport.exchange import CBOR, Op, frame


@pytest.fixture
def stream():
    stream = io.StringIO()
    handler = set_up(stream=stream)
    yield stream
    for name in ("palmatch", "uvicorn"):
        logger = logging.getLogger(name)
        logger.removeHandler(handler)
        logger.propagate = True
        logger.setLevel(logging.NOTSET)


def test_logs_are_json_lines_with_public_fields_only(stream):
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


def test_a_flood_of_refusals_is_logged_once_a_minute(stream, monkeypatch):
    log = logging.getLogger("palmatch.live.hub")
    for minute in range(3):
        monkeypatch.setattr("time.time", lambda minute=minute: 60.0 * minute)
        monkeypatch.setattr("time.time_ns", lambda minute=minute: 60_000_000_000 * minute)
        for number in range(1000):
            log.warning("refused", extra={"reason": f"found {number} bytes"})
        log.warning("refused", extra={"reason": "too large"})
    assert len(stream.getvalue().splitlines()) == 6


def test_clients_choose_neither_what_is_logged_nor_how_many_lines(stream, tmp_path):
    """Names of fields, kinds and versions of their own, HTTP that is none, and bodies that end in the middle."""
    issuer = Issuer(tmp_path / "issuer.db", Signer.fresh())

    async def send(url, data):
        host, port = url.removeprefix("ws://").removesuffix("/bus").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(data)
        await writer.drain()
        await asyncio.sleep(0.01)
        writer.transport.abort()

    async def main():
        hub = Hub()
        url = await hub.start(routes=[issuer.route()])
        post = "POST /token HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n"
        async with connect(url, subprotocols=[Subprotocol(CBOR)]) as client:
            for number in range(15):
                name = f"secret-{chr(97 + number)}`' {number}"
                for body in (cbor2.dumps({name: 1}), cbor2.dumps({"game": [name]})):
                    await send(url, post.format(64 + len(body)).encode() + bytes(64) + body)
                await send(url, post.format(500).encode() + name.encode())
                await send(url, name.encode() + b"\r\n\r\n")
                await client.send(frame(Op.PUBLISH, f"pm/1/g/{quote(name)}", b""))
        await hub.stop()

    asyncio.run(asyncio.wait_for(main(), 60))
    issuer.close()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert 2 <= len(lines) <= 8
    assert "secret" not in stream.getvalue()
    assert not any("exception" in line for line in lines)
