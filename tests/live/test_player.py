import asyncio
from dataclasses import replace

import msgspec
import pytest

from live.buses import KEYS, TRUST
from live.examples import MESSAGES, topic
from live.listening import Listener, clock
from live.memory import MemoryBroker, MemoryTransport, VirtualLoop, run_virtual
from live.small_game import GAME, NAMES, BidRules, ReportRules, Resources, announce, opening, player
from palmatch.device import state
from palmatch.device.ledger import units_of
from palmatch.device.messages import pack
from palmatch.device.records import Bulletin, ReportTable
from palmatch.device.state import BidMachine, ReportMachine
from palmatch.errors import InputError, ProtocolError, TransportError
from palmatch.live import tokens
from palmatch.live.board import Board
from palmatch.live.codec import decode
from palmatch.live.journal import Journal
from palmatch.live.keys import Signer, verify
from palmatch.live.records import bulletin_record, table_record
from palmatch.live.session import DeviceSession
from palmatch.live.tokens import forget, forget_older, identity
from palmatch.live.topics import Topic
from palmatch.live.transport import Access


@pytest.mark.parametrize("protocol", ["report", "bids"])
async def test_devices_report_or_bid_are_matched_and_only_their_resource_learns_where_they_are(
    join, memory_folder, issuer, protocol
):
    resources, listener = Resources(), Listener()
    await listener.listen(await join())
    await resources.serve(join)
    await announce(join, issuer)
    journal = Journal(memory_folder / "board.db")
    board = Board(await join("board"), KEYS["board"], journal, clock=clock, threads=False)
    rules, kind = (ReportRules(), ReportMachine) if protocol == "report" else (BidRules(), BidMachine)
    times = opening(issuer, rules, protocol, 1 if protocol == "report" else 40)
    devices = [await player(await join(), memory_folder, number, issuer, kind) for number in range(3)]
    _, *played = await asyncio.gather(
        board.play(GAME, times),
        *(device.play() for device, _ in devices),
    )
    await asyncio.sleep(0.5)
    got = {device.tag: result.resource for (device, _), result in zip(devices, played, strict=True)}
    assert listener.pairs == {tag: name for tag, name in got.items() if name is not None}
    assert sorted(name for name in got.values() if name) == sorted(NAMES)
    for (device, ledger), result in zip(devices, played, strict=True):
        assert ledger.spent() == units_of(1.0)
        if result.resource is not None:
            assert resources.found[result.resource] == device.position
        ledger.close()
    journal.close()
    assert not listener.conflicts


@pytest.mark.parametrize("announced", [False, True])
async def test_an_issuer_key_for_one_device_gets_no_join(join, memory_folder, issuer, announced):
    """Whether the board names that key, or all others' key and only the token is signed by that one."""
    journal, own = Journal(memory_folder / "board.db"), tokens.new_key()
    board = Board(await join("board"), KEYS["board"], journal, clock=clock, threads=False)
    await announce(join, issuer)
    device, ledger = await player(await join(), memory_folder, 0, own, ReportMachine)
    game = asyncio.create_task(board.play(GAME, opening(issuer if announced else own, ReportRules(), "report", 1)))
    with pytest.raises(ProtocolError, match="token of this device" if announced else "issuer key"):
        await device.play()
    assert journal.told(GAME, -1) == []
    game.cancel()
    ledger.close()
    journal.close()


async def test_an_answer_that_the_resource_did_not_sign_is_not_believed(join, memory_folder, issuer, monkeypatch):
    resources = Resources()
    await resources.serve(join)
    await announce(join, issuer)
    journal = Journal(memory_folder / "board.db")
    board = Board(await join("board"), KEYS["board"], journal, clock=clock, threads=False)
    device, ledger = await player(await join(), memory_folder, 0, issuer, ReportMachine)
    # What answers for them has other keys than those of their certificates.
    for name in NAMES:
        monkeypatch.setitem(KEYS, name, Signer.fresh())
    _, played = await asyncio.gather(board.play(GAME, opening(issuer, ReportRules(), "report", 1)), device.play())
    assert (played.resource in NAMES, played.answer) == (True, None)
    assert resources.found == {played.resource: device.position}
    ledger.close()
    journal.close()


def test_a_device_that_dies_at_any_point_has_one_identity_in_a_game(tmp_path, issuer):
    asked: list[bytes] = []

    async def dying(blinded):
        asked.append(blinded)
        raise RuntimeError

    async def answering(blinded):
        asked.append(blinded)
        return tokens.blind_sign(issuer, blinded)

    der, path = tokens.public_der(issuer), tmp_path / "morning.identity"
    for _ in range(2):
        with pytest.raises(RuntimeError):
            asyncio.run(identity(tmp_path, der, GAME, dying))
    first = asyncio.run(identity(tmp_path, der, GAME, answering))
    assert (len(asked), len(set(asked))) == (3, 1)
    assert asyncio.run(identity(tmp_path, der, GAME, dying)) == first
    assert tokens.is_valid(der, GAME, first.signer.public, first.token)
    assert path.stat().st_mode & 0o077 == 0
    assert msgspec.json.decode(path.read_bytes())["blinded"] == ""
    with pytest.raises(InputError, match="another issuer key"):
        asyncio.run(identity(tmp_path, tokens.public_der(tokens.new_key()), GAME, answering))
    forget_older(tmp_path, path.stat().st_mtime)
    assert path.exists()
    forget_older(tmp_path, path.stat().st_mtime + 1)
    assert not path.exists()
    second = asyncio.run(identity(tmp_path, der, GAME, answering))
    assert second != first
    forget(tmp_path, GAME)
    assert asyncio.run(identity(tmp_path, der, GAME, answering)) != second
    path.write_text("broken")
    with pytest.raises(InputError, match="cannot be read"):
        asyncio.run(identity(tmp_path, der, GAME, answering))


class CutOff(MemoryTransport):
    """A network that holds everything up for 12 s, and on which a client waits for an answer for longer."""

    _FROM, _UNTIL = 1.4, 13.4

    @property
    def is_cut(self):
        return self._FROM <= asyncio.get_running_loop().time() < self._UNTIL

    async def _subscribe(self, pattern):
        if self.is_cut:
            await asyncio.sleep(45)
            raise TransportError("no answer")
        await super()._subscribe(pattern)

    async def _unsubscribe(self, pattern):
        if not self.is_cut:
            await super()._unsubscribe(pattern)

    def _arrives(self, topic, packet, retained):
        if self.is_cut:
            asyncio.get_running_loop().call_at(self._UNTIL, super()._arrives, topic, packet, retained)
        else:
            super()._arrives(topic, packet, retained)


async def test_a_device_that_is_cut_off_for_seconds_goes_on_where_it_was(virtual, memory_folder, issuer):
    """It once gave up when it had asked, for longer than it would wait, what was there since the network was back."""
    broker, journal = MemoryBroker(0), Journal(memory_folder / "board.db")

    async def join(role="device", name=""):
        return broker.connect(Access(role, (name,)))

    await announce(join, issuer)
    board = Board(await join("board"), KEYS["board"], journal, clock=clock, threads=False)
    devices = [
        await player(transport, memory_folder, number, issuer, ReportMachine)
        for number, transport in enumerate([CutOff(broker, Access()), await join()])
    ]
    rules = opening(issuer, ReportRules(), "report", 1, slot=30.0)
    resources = Resources()
    await resources.serve(join)
    result, *played = await asyncio.gather(board.play(GAME, rules), *(device.play() for device, _ in devices))
    assert result.matched == 2
    assert sorted(str(one.resource) for one in played) == sorted(NAMES)
    for _, ledger in devices:
        ledger.close()
    journal.close()


class Leaking(DeviceSession):
    """A planted bug: the window begins when the device has decided, not when the slot began."""

    def _later(self, topic, message, offset, began, window, **more):
        super()._later(topic, message, offset, max(began, self._clock()), window, **more)


class Patient(BidRules):
    """A game that goes on to its last slot, whoever bids."""

    def close(self, slot, said):
        return super().close(slot, said)[0], False


class Hasty(DeviceSession):
    """A planted bug: a device that goes by the board's slot alone, however short it is."""

    def _later(self, *given, **more):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(state, "LEAST_MARGIN", 1e-9)
            super()._later(*given, **more)


def bid_times(folder, issuer, thinking, kind, slot=0.8):
    """Return when a device's bids reach the broker after the bulletin, if it takes this long to decide on them."""

    class Slow(BidMachine):
        def receive(self, record, digest):
            sends = super().receive(record, digest)
            if isinstance(record, Bulletin):
                loop = asyncio.get_running_loop()
                assert isinstance(loop, VirtualLoop)
                loop.advance(thinking)
            return sends

    seen: list[float] = []
    own = folder / f"{thinking}{kind.__name__}{slot}"
    own.mkdir()

    async def main():
        def observe(one):
            if one.op == "publish" and "/bid/" in one.topic:
                seen.append(one.time)

        broker = MemoryBroker(0, observer=observe)

        async def join(role="device", name=""):
            return broker.connect(Access(role, (name,)))

        await announce(join, issuer)
        await Resources().serve(join)
        journal = Journal(own / "board.db")
        board = Board(broker.connect(Access("board")), KEYS["board"], journal, clock=clock, threads=False)
        made, ledger = await player(broker.connect(), own, 0, issuer, Slow)
        made.machine._offset = lambda: 0.5
        device = kind(made.transport, TRUST, GAME, made.identity, made.machine, made.position, clock=clock)
        # The game has started when the first bulletin comes, so that the window begins with the bulletin.
        rules = opening(issuer, Patient(), "bids", 200 if slot < 0.1 else 5, preparing=0.0, slot=slot)
        game = asyncio.create_task(board.play(GAME, rules))
        await device.play()
        await game
        ledger.close()
        journal.close()

    run_virtual(main())
    return seen[:1]


def test_when_a_message_leaves_does_not_depend_on_how_long_the_device_thought(memory_folder, issuer):
    fast, slow = (bid_times(memory_folder, issuer, thinking, DeviceSession) for thinking in (0.0, 0.1))
    assert len(fast) == 1
    assert fast == pytest.approx(slow, abs=1e-6)
    assert bid_times(memory_folder, issuer, 0.1, Leaking)[0] > fast[0] + 0.05


def test_a_board_with_slots_too_short_to_decide_in_does_not_see_how_long_a_device_thought(memory_folder, issuer):
    fast, slow = (bid_times(memory_folder, issuer, thinking, DeviceSession, slot=0.06) for thinking in (0.0, 0.04))
    assert len(fast) == 1
    assert fast == pytest.approx(slow, abs=1e-6)
    fast, slow = (bid_times(memory_folder, issuer, thinking, Hasty, slot=0.06) for thinking in (0.0, 0.04))
    assert slow[0] > fast[0] + 0.01


def test_a_device_that_thinks_longer_than_its_time_is_late_by_whole_margins(memory_folder, issuer):
    # With an offset of a half a bid leaves after 0.32 s of a slot of 0.8 s, whose margin is 0.08 s.
    [at], [late], [later] = (
        bid_times(memory_folder, issuer, thinking, DeviceSession) for thinking in (0.0, 0.33, 0.39)
    )
    assert late == pytest.approx(later, abs=1e-6)
    assert late == pytest.approx(at + 0.08, abs=1e-6)


def sent_copies(folder, issuer, lost, board_key):
    """Return how many joins and reports of two devices reached the broker, the first one of a kind being lost.

    `board_key` signs what the board says about whom it has heard.
    """
    seen: dict[str, int] = {"join": 0, "report": 0}
    first: list[bytes] = []
    doubted = board_key is not KEYS["board"]

    class Lossy(MemoryBroker):
        def connect(self, access=None):
            transport = super().connect(access)
            publish = transport._publish

            async def counted(where, packet, retain):
                kind = where.split("/")[3]
                if kind in seen:
                    seen[kind] += 1
                if kind == "heard":
                    place = Topic.parse(where)
                    packet = board_key.packet(place, decode(place, packet).message)
                if kind == "report":
                    first.append(packet)
                # With all reports the slot is over: where the board is not believed, those of one device are lost.
                if not (kind == lost and seen[kind] == 1) and not (doubted and [packet] == first[:1]):
                    await publish(where, packet, retain)

            transport._publish = counted
            return transport

    async def main():
        broker = Lossy(0)

        async def join(role="device", name=""):
            return broker.connect(Access(role, (name,)))

        await announce(join, issuer)
        await Resources().serve(join)
        journal = Journal(folder / "board.db")
        board = Board(broker.connect(Access("board")), KEYS["board"], journal, clock=clock, threads=False)
        devices = [await player(broker.connect(), folder, number, issuer, ReportMachine) for number in range(2)]
        rules = opening(issuer, ReportRules(), "report", 1)
        result, *_ = await asyncio.gather(board.play(GAME, rules), *(device.play() for device, _ in devices))
        assert result.matched == (1 if doubted else 2)
        for _, ledger in devices:
            ledger.close()
        journal.close()

    run_virtual(main())
    return seen


def test_joins_and_reports_are_sent_again_until_the_board_has_said_that_it_has_them(memory_folder, issuer):
    own, others = KEYS["board"], Signer.fresh()
    cases = {("", own): (2, 2), ("join", own): (3, 2), ("report", own): (2, 3), ("", others): (6, 6)}
    for number, ((lost, key), expected) in enumerate(cases.items()):
        folder = memory_folder / str(number)
        folder.mkdir()
        seen = sent_copies(folder, issuer, lost, key)
        assert (seen["join"], seen["report"]) == expected, (lost, number)


async def test_a_report_is_in_time_also_if_its_table_came_late(virtual, memory_folder, issuer):
    class Late(MemoryTransport):
        def _deliver(self, topic, packet):
            deliver = super()._deliver
            loop, times = asyncio.get_running_loop(), opening(issuer, ReportRules(), "report", 1).content
            late = times.start / 1000 + 0.6 * times.slot if "/table/" in topic else 0.0
            loop.call_at(max(late, loop.time()), deliver, topic, packet)

    broker = MemoryBroker(0)

    async def join(role="device", name=""):
        return broker.connect(Access(role, (name,)))

    await announce(join, issuer)
    await Resources().serve(join)
    journal = Journal(memory_folder / "board.db")
    board = Board(broker.connect(Access("board")), KEYS["board"], journal, clock=clock, threads=False)
    device, ledger = await player(Late(broker, Access()), memory_folder, 0, issuer, ReportMachine)
    device.machine._offset = lambda: 0.99
    result, played = await asyncio.gather(board.play(GAME, opening(issuer, ReportRules(), "report", 1)), device.play())
    assert result.matched == 1
    assert played.resource is not None
    ledger.close()
    journal.close()


def test_messages_become_the_records_that_a_device_knows():
    def said(kind):
        return verify(decode(topic(kind), KEYS["board"].packet(topic(kind), MESSAGES[kind])), KEYS["board"].public)

    table = table_record(said("table"))
    assert isinstance(table, ReportTable)
    assert table.chances == ((2**52, 2**52), (2**52, 2**52))
    assert table.values == ((0.25, 0.5), (0.75, 1.0))
    assert table.earlier[0].values == ((0.25, 0.5),)
    bulletin = bulletin_record(said("bulletin"))
    assert bulletin.holders == (b"abcdefgh".hex(), None)
    assert bulletin.prices == (0.5, 0.25)
    assert bulletin.attempted == (True, False)
    sold = replace(MESSAGES["bulletin"], prices=pack("d", [-1.0, 0.5]))
    envelope = decode(topic("bulletin"), KEYS["board"].packet(topic("bulletin"), sold))
    assert bulletin_record(envelope).prices == (None, 0.5)
