import asyncio
import gc
from random import Random
from typing import Any

import httpx
import pytest

from live.buses import KEYS, TRUST, certified
from live.examples import MESSAGES, topic
from live.memory import MemoryBroker, MemoryTransport, run_virtual
from palmatch.errors import InputError, ProtocolError, TransportError
from palmatch.live.keys import Signer
from palmatch.live.ops import PrometheusMetrics
from palmatch.live.session import Retained
from palmatch.live.topics import KINDS, ROLES, Topic, matches, readable, writable
from palmatch.live.transport import Access, Credentials, Hub, base, connect
from palmatch.live.transport.hub import monitor
from palmatch.studies.live_devices import Faults, Faulty

DEVICE = Signer.fresh()


def packet(kind, signer=DEVICE):
    return signer.packet(topic(kind), MESSAGES[kind])


class Inbox:
    """What has come to a subscriber, and a way to wait for more."""

    def __init__(self):
        self.items: list[tuple[str, bytes]] = []
        self._more = asyncio.Event()

    def __call__(self, topic, packet):
        self.items.append((topic, packet))
        self._more.set()

    async def wait(self, count):
        while len(self.items) < count:
            self._more.clear()
            await asyncio.wait_for(self._more.wait(), 20)
        return self.items


async def settled(board):
    await board.fence("morning", KEYS["board"])


async def test_the_last_statement_is_there_for_those_who_come_later(any_bus, join):
    board = await join("board")
    for sequence in (KEYS["issuer"], KEYS["board"]):
        await board.publish(topic("open"), packet("open", sequence))
    await settled(board)
    device = await join()
    assert await device.value(topic("open")) == packet("open", KEYS["board"])
    assert await device.value(topic("result"), timeout_seconds=0.2) is None


async def test_a_statement_that_was_cleared_is_gone_for_those_who_come_later(any_bus, join):
    board, device = await join("board"), await join()
    await board.publish(topic("open"), packet("open", KEYS["board"]))
    assert await device.value(topic("open")) is not None
    await board.clear(topic("open"))
    await settled(board)
    assert await device.value(topic("open"), timeout_seconds=0.2) is None


async def test_a_fence_comes_after_all_that_was_sent_before(any_bus, join):
    board, inbox = await join("board"), Inbox()
    await board.subscribe("pm/1/morning/claim/+", inbox)
    devices = [await join() for _ in range(5)]
    sent = [packet("claim", Signer.fresh()) for _ in range(20)]
    for number, one in enumerate(sent):
        await devices[number % 5].publish(topic("claim"), one)
    # What a device has sent is at the broker once the broker has answered the same device.
    for device in devices:
        await device.value(topic("open"), timeout_seconds=0.3)
    await settled(board)
    assert sorted(found for _, found in inbox.items) == sorted(sent)


async def test_order_is_kept_from_one_sender_to_one_reader(any_bus, join):
    board, device, inbox = await join("board"), await join(), Inbox()
    await board.subscribe(topic("claim"), inbox)
    sent = [packet("claim", Signer.fresh()) for _ in range(50)]
    for one in sent:
        await device.publish(topic("claim"), one)
    assert [found for _, found in await inbox.wait(50)] == sent


async def test_a_device_cannot_speak_for_others(any_bus, join):
    board, device, inbox = await join("board"), await join(), Inbox()
    await board.subscribe(topic("join"), inbox)
    for kind in ("open", "roster", "table", "bulletin", "result", "answer", "resource", "fence"):
        await board.subscribe(topic(kind), inbox)
        await device.publish(topic(kind), packet(kind), retain=False)
    await device.publish(topic("join"), packet("join"))
    assert [name for name, _ in await inbox.wait(1)] == [str(topic("join"))]


PRIVATE = (
    "#", "pm/#", "pm/1/morning/#", "pm/1/morning/+", "pm/1/morning/+/+", "pm/1/morning/report", "pm/1/+/join",
    "pm/1/morning/handover/v1", "pm/1/+/handover/+", "pm/1/morning/bid/+", "pm/1/morning/claim/v1",
)  # fmt: skip


async def test_a_device_cannot_read_what_others_send(any_bus, join):
    board, device, inbox, stolen = await join("board"), await join(), Inbox(), Inbox()
    for kind in ("join", "report", "bid", "claim"):
        await board.subscribe(topic(kind), inbox)
    spies = [await join() for _ in PRIVATE]
    for spy, pattern in zip(spies, PRIVATE, strict=True):
        if any_bus.name == "mqtt":
            await spy.subscribe(pattern, stolen)
        else:
            with pytest.raises(ProtocolError):
                await spy.subscribe(pattern, stolen)
    for kind in ("handover", "join", "report", "bid", "claim"):
        await device.publish(topic(kind), packet(kind))
    await inbox.wait(4)
    for spy in spies:
        await spy.value(topic("open"), timeout_seconds=0.2)
    assert stolen.items == []


async def test_only_its_own_resource_reads_a_handover(any_bus, join):
    resource, other, device = await join("resource", "v1"), await join("resource", "v2"), await join()
    inbox, stolen = Inbox(), Inbox()
    await resource.subscribe(topic("handover"), inbox)
    try:
        await other.subscribe(topic("handover"), stolen)
    except ProtocolError:
        assert any_bus.name != "mqtt"
    await device.publish(topic("handover"), packet("handover"))
    await inbox.wait(1)
    await other.value(topic("open"), timeout_seconds=0.2)
    assert stolen.items == []


async def test_all_parties_can_say_and_read_what_their_role_needs(any_bus, join):
    """Every kind goes from its writer to each of its readers."""
    names = {"resource": "v1"}
    parties = {role: await join(role, names.get(role, "")) for role in ROLES}
    for kind, rule in KINDS.items():
        inboxes = {role: Inbox() for role in rule.readers}
        for role, inbox in inboxes.items():
            await parties[role].subscribe(topic(kind), inbox)
        await parties[rule.writer].publish(topic(kind), packet(kind))
        for inbox in inboxes.values():
            assert await inbox.wait(1) == [(str(topic(kind)), packet(kind))]


async def test_a_handler_that_refuses_a_packet_does_not_stop_the_others(any_bus, join):
    board, device, inbox = await join("board"), await join(), Inbox()

    def refuse(*_):
        raise ProtocolError("not this one")

    await board.subscribe(topic("report"), refuse)
    await board.subscribe(topic("report"), inbox)
    await device.publish(topic("report"), packet("report"))
    await device.publish(topic("report"), packet("report"))
    await inbox.wait(2)


async def test_a_flood_costs_its_sender_the_connection_and_others_nothing(hub_bus, join):
    board, device, flood, inbox = await join("board"), await join(), await join(), Inbox()
    await board.subscribe(topic("report"), inbox)
    # The flooding client reconnects each time that it is closed, and is closed again.
    one = packet("report", Signer.fresh())
    for _ in range(20_000):
        await flood.publish(topic("report"), one)
    await device.publish(topic("report"), packet("report"))
    while (str(topic("report")), packet("report")) not in inbox.items:
        await inbox.wait(len(inbox.items) + 1)
    await settled(board)
    assert len(inbox.items) < 10_000


async def test_a_hub_admits_parties_by_their_keys_only():
    hub = Hub(TRUST)
    url = await hub.start()
    wrong = Signer.fresh()
    try:
        for role in ("board", "issuer"):
            with pytest.raises(TransportError, match="refuses the connection"):
                await connect(url, credentials=Credentials(role, wrong, "w"))
        with pytest.raises(TransportError, match="refuses the connection"):
            await connect(url, credentials=Credentials("resource", wrong, certificates=(certified("v1"),)))
    finally:
        await hub.stop()


async def test_metrics_count_what_happens_and_name_no_agent():
    metrics, problem = PrometheusMetrics(), ""
    hub = Hub(metrics=metrics)
    url = await hub.start()
    watched = monitor(metrics, lambda: problem)
    address = await watched.begin("127.0.0.1", 0)
    device = await connect(url)
    await device.publish(topic("report"), packet("report"))
    await device.publish(topic("open"), packet("open"), retain=False)
    await device.value(topic("open"), timeout_seconds=0.1)
    async with httpx.AsyncClient() as client:
        text = (await client.get(f"http://{address}/metrics")).text
        assert (await client.get(f"http://{address}/healthz")).text == "ok\n"
        problem = "no broker"
        answer = await client.get(f"http://{address}/healthz")
        assert (answer.status_code, answer.text) == (503, "no broker\n")
        # What the operator reads is not for devices.
        public = url.replace("ws://", "http://").replace("/bus", "/metrics")
        assert (await client.get(public)).status_code == 404
    await watched.end()
    assert 'palmatch_received_total{kind="report"} 1' in text
    assert 'palmatch_refused_total{reason="publish"} 1' in text
    assert 'palmatch_connections{role="device"} 1' in text
    assert "morning" not in text
    await device.close()
    await hub.stop()


async def test_a_client_whose_broker_is_gone_leaves_time_for_everything_else(virtual):
    """To ask a connection that has ended again and again, without a pause, once kept a new one from being made."""

    class Gone(MemoryTransport):
        async def _subscribe(self, pattern):
            raise TransportError(f"{pattern} is lost")

    broker = MemoryBroker()
    gone, ticks = Gone(broker, Access()), 0

    async def tick():
        nonlocal ticks
        while True:
            await asyncio.sleep(1)
            ticks += 1

    task = asyncio.create_task(tick())
    with pytest.raises(TransportError, match="There was no open of game morning in time"):
        await Retained(gone).value(topic("open"), 60)
    task.cancel()
    assert ticks >= 59


async def test_a_subscription_that_failed_leaves_no_handler_behind(hub_bus, join):
    device, board, inbox = await join(), await join("board"), Inbox()
    with pytest.raises(ProtocolError):
        await device.subscribe("pm/1/morning/+", inbox)
    await board.publish(topic("open"), packet("open", KEYS["board"]))
    assert await device.value(topic("open")) is not None
    assert inbox.items == []


async def test_clients_come_back_when_the_broker_was_killed(start_broker):
    broker = start_broker()
    url = f"mqtt://127.0.0.1:{broker.configuration.port}"
    board = await connect(url, user="board", password=broker.passwords["board"])
    device, inbox, opened = await connect(url), Inbox(), Inbox()
    again = asyncio.Event()
    await board.subscribe(topic("report"), inbox)
    await device.subscribe(topic("open"), opened)
    board.on_connect(again.set)
    for number in range(1, 3):
        again.clear()
        broker.kill()
        broker.start()
        await asyncio.wait_for(again.wait(), 30)
        # A broker that was killed has forgotten what it retained: the board says it again.
        await board.publish(topic("open"), packet("open", KEYS["board"]))
        await opened.wait(number)
        await device.publish(topic("report"), packet("report"))
        await inbox.wait(number)
    await device.close()
    await board.close()


@pytest.fixture
def _without_delay(monkeypatch):
    """Clients try to connect again all the time, so that any moment is one of an attempt."""
    monkeypatch.setattr(base, "_SHORTEST_DELAY", 0.0)
    monkeypatch.setattr(base, "_LONGEST_DELAY", 0.0)


async def close_all(clients):
    """Close each of them at another turn of the event loop."""

    async def close(client, turns):
        for _ in range(turns):
            await asyncio.sleep(0)
        await client.close()

    await asyncio.gather(*(close(client, turns) for turns, client in enumerate(clients)))


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("_without_delay")
@pytest.mark.parametrize("back", [False, True], ids=["gone", "back"])
def test_a_client_can_be_closed_at_any_moment_while_its_broker_is_gone(start_broker, back):
    """A cancellation that came together with the end of an attempt was once lost, and `close` waited for ever.

    And nothing is left that asyncio would print: the library's reader once asked a transport that was gone.
    """
    told: list[dict[str, Any]] = []

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        broker = start_broker()
        clients = [await connect(f"mqtt://127.0.0.1:{broker.configuration.port}") for _ in range(80)]
        broker.kill()
        if back:
            broker.start()
        await close_all(clients)
        gc.collect()

    asyncio.run(asyncio.wait_for(main(), 30))
    assert told == []


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("_without_delay")
@pytest.mark.parametrize("back", [False, True], ids=["gone", "back"])
async def test_a_client_can_be_closed_at_any_moment_while_its_hub_is_gone(back):
    hub, again = Hub(), Hub()
    url = await hub.start()
    clients = [await connect(url) for _ in range(80)]
    await hub.stop()
    if back:
        await again.start(port=int(url.split(":")[2].split("/")[0]))
    await close_all(clients)
    await again.stop()


async def test_clients_come_back_when_the_hub_was_stopped():
    hub = Hub()
    url = await hub.start()
    port = int(url.split(":")[2].split("/")[0])
    device, opened = await connect(url), Inbox()
    await device.subscribe(topic("open"), opened)
    await hub.stop()
    again = Hub()
    await again.start(port=port)
    await again.local(Access("board")).publish(topic("open"), packet("open", KEYS["board"]))
    await opened.wait(1)
    await device.close()
    await again.stop()


async def test_plain_connections_leave_the_machine_only_when_told():
    for url in ("ws://192.0.2.1/bus", "mqtt://broker.example:1883"):
        with pytest.raises(InputError, match="not encrypted"):
            await connect(url)
    for url in ("http://127.0.0.1", "ws://", "nonsense"):
        with pytest.raises(InputError, match="expected ws://"):
            await connect(url)
    with pytest.raises(TransportError, match="not the loopback"):
        await Hub().start("0.0.0.0")
    for url in ("ws://127.0.0.1:1/bus", "mqtt://127.0.0.1:1"):
        with pytest.raises(TransportError, match="Cannot connect"):
            await connect(url)


def test_patterns_match_as_in_mqtt():
    assert matches("a/+/c", "a/b/c")
    assert matches("a/#", "a/b/c")
    assert not matches("a/+", "a/b/c")
    assert not matches("a/b/c", "a/b")


def test_a_subscription_is_allowed_if_all_that_it_receives_may_be_read():
    device, resource = Access(), Access("resource", ("v1", "v/2"))
    allowed = ("pm/1/g/open", "pm/1/+/open", "pm/1/g/table/3,4~1", "pm/1/g/table/+", "pm/1/+/table/+")
    assert all(device.may_subscribe(pattern) for pattern in allowed)
    refused = ("pm/1/g/join", "pm/1/g/handover/v1", "pm/1/g/table/#", "pm/1/#", "#", "pm/+/g/open", "pm/1/g/+", "open")
    assert not any(device.may_subscribe(pattern) for pattern in refused)
    own = ("pm/1/+/handover/v1", "pm/1/g/handover/v1", "pm/1/+/handover/v%2F2")
    assert all(resource.may_subscribe(pattern) for pattern in own)
    assert not any(resource.may_subscribe(pattern) for pattern in ("pm/1/+/handover/+", "pm/1/g/handover/v3"))


def test_no_two_roles_write_one_topic_and_private_ones_have_few_readers():
    for kind in ("join", "report", "bid", "cancel"):
        assert KINDS[kind].readers == ("board",)
    assert KINDS["handover"].readers == ("resource",)
    assert not [pattern for pattern in readable("board") if "handover" in pattern]
    assert len([pattern for role in ROLES for pattern in writable(role, ("n",))]) == len(KINDS)


def run_faulty(seed):
    async def main():
        broker, inbox = MemoryBroker(seed, lambda random: random.expovariate(20)), Inbox()
        board = broker.connect(Access("board"))
        await board.subscribe("pm/1/+/claim/+", inbox)
        device = Faulty(broker.connect(), Faults(0.2, 0.2, 0.2), Random(seed))
        for number in range(200):
            await asyncio.sleep(0.1)
            await device.publish(Topic("g", "claim", f"r{number}"), packet("claim"))
        await asyncio.sleep(10)
        return inbox.items

    return run_virtual(main())


def test_faults_lose_delay_and_double_and_a_seed_repeats_them():
    found = [name for name, _ in run_faulty(1)]
    assert 130 < len(set(found)) < 190
    assert len(found) > len(set(found))
    assert found != sorted(found, key=lambda name: int(name.rsplit("r", 1)[1]))
    assert found == [name for name, _ in run_faulty(1)] != [name for name, _ in run_faulty(2)]
