import asyncio
from contextlib import asynccontextmanager

import pytest
import websockets
from websockets.exceptions import ConnectionClosed, InvalidStatus

from live.examples import topic
from palmatch.live.transport import Hub
from palmatch.live.transport.exchange import CBOR, Op, frame, read_frame
from palmatch.live.transport.socket import Limits

SUBSCRIBE = frame(Op.SUBSCRIBE, str(topic("open")), b"")


@asynccontextmanager
async def joined(url, *names):
    async with websockets.connect(url, subprotocols=list(names or (CBOR,)), compression=None) as client:
        yield client


def with_hub(
    main,
    allowed=lambda _path, _headers: True,
    limits=Limits(packet=1000),  # noqa: B008 - frozen
):
    async def run():
        hub = Hub(limits=limits)
        try:
            await main(await hub.start(allowed=allowed))
        finally:
            await hub.stop()

    asyncio.run(asyncio.wait_for(run(), 30))


async def by_hand(url):
    """Connect without a library that would answer or read; what the hub says is read up to a few kilobytes."""
    host, port = url.removeprefix("ws://").removesuffix("/bus").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1000)
    writer.write(
        f"GET /bus HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {'A' * 22}==\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Protocol: {CBOR}\r\n\r\n".encode()
    )
    assert b" 101 " in await reader.readline()
    return reader, writer


async def code_of_end(client):
    try:
        while True:
            await client.recv()
    except ConnectionClosed as ended:
        return ended.rcvd and ended.rcvd.code


async def op_of(client):
    data = await client.recv()
    assert isinstance(data, bytes)
    return read_frame(data, tuple(Op))[0]


@pytest.mark.parametrize("parts", [[SUBSCRIBE], [SUBSCRIBE[:1], b"", SUBSCRIBE[1:9], SUBSCRIBE[9:]]])
def test_a_message_in_parts_is_handled_as_one(parts):
    async def main(url):
        async with joined(url) as client:
            assert await op_of(client) is Op.CHALLENGE
            for _ in range(3):
                await client.send(parts)
                assert await op_of(client) is Op.SUBSCRIBED

    with_hub(main)


@pytest.mark.parametrize(
    ("data", "text", "code"),
    [(bytes(1001), False, 1009), ([bytes(600), bytes(600)], False, 1009), (b"text", True, 1003)],
)
def test_what_breaks_the_rules_ends_the_connection(data, text, code):
    async def main(url):
        async with joined(url) as client:
            assert await op_of(client) is Op.CHALLENGE
            await client.send(data, text=text)
            assert await code_of_end(client) == code
        async with joined(url) as client:
            assert await op_of(client) is Op.CHALLENGE

    with_hub(main)


def is_closed(path, headers):
    assert (path, headers["sec-websocket-protocol"]) == ("/bus", CBOR)
    return False


@pytest.mark.parametrize(
    ("path", "name", "allowed"),
    [("/bus", "other", lambda *_: True), ("/other", CBOR, lambda *_: True), ("/bus", CBOR, is_closed)],
)
def test_path_notation_and_who_may_connect_hold_for_websockets(path, name, allowed):
    async def main(url):
        with pytest.raises(InvalidStatus) as refused:
            async with joined(url.replace("/bus", path), name):
                pass
        assert refused.value.response.status_code == 403

    with_hub(main, allowed)


def test_a_client_that_does_not_answer_is_cut_off_and_others_stay():
    async def main(url):
        reader, writer = await by_hand(url)
        async with joined(url) as client:
            # It reads to the end, and says nothing to what it is asked.
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(10**6)
            assert await op_of(client) is Op.CHALLENGE
            await client.send(SUBSCRIBE)
            assert await op_of(client) is Op.SUBSCRIBED
        writer.close()

    with_hub(main, limits=Limits(ping_time=0.1))


# A ping, and an empty part of a message; all zeros mask nothing.
PING, EMPTY = b"\x89\xfd" + bytes(129), b"\x00\x80" + bytes(4)


async def send_on(writer, data):
    """Send far more than systems keep of what is not read, or until the connection ends."""
    for _ in range(1000):
        writer.write(data)
        await writer.drain()
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("first", "flood", "limits"),
    [
        (b"", PING, Limits(packet=1000)),
        (b"\x02\x80" + bytes(4), EMPTY, Limits(packet=1000)),
        # It asks, and does not read the answers.
        (b"", PING, Limits(packet=1000, empty=10**9, waiting=10_000)),
    ],
)
def test_a_client_that_floods_with_nothing_is_cut_off_and_others_stay(first, flood, limits):
    async def main(url):
        _, writer = await by_hand(url)
        async with joined(url) as client:
            writer.write(first)
            with pytest.raises(ConnectionError):
                await send_on(writer, flood * 500)
            assert await op_of(client) is Op.CHALLENGE
            await client.send(SUBSCRIBE)
            assert await op_of(client) is Op.SUBSCRIBED

    with_hub(main, limits=limits)


def test_as_many_empty_frames_as_allowed_do_no_harm():
    async def main(url):
        async with joined(url) as client:
            assert await op_of(client) is Op.CHALLENGE
            await client.send([SUBSCRIBE[:5], *[b""] * (Limits().empty - 1), SUBSCRIBE[5:]])
            assert await op_of(client) is Op.SUBSCRIBED

    with_hub(main)


def test_a_hub_that_stops_says_so_to_its_clients():
    async def main():
        hub = Hub()
        async with joined(await hub.start()) as client:
            await hub.stop()
            return await code_of_end(client)

    assert asyncio.run(asyncio.wait_for(main(), 30)) == 1001
