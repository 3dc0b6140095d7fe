import asyncio
from contextlib import suppress
from functools import partial
from itertools import permutations
from random import Random

import numpy as np
import pytest

from live import small_game
from live.examples import MESSAGES
from live.listening import BOARD, GAME, Listener, clock
from live.memory import MemoryBroker, run_virtual
from live.table_rules import NAMES, REPORTS, TableRules
from palmatch.device import messages as m
from palmatch.device.messages import split
from palmatch.errors import InputError, ProtocolError, TransportError
from palmatch.live import tokens
from palmatch.live.board import Board
from palmatch.live.codec import decode
from palmatch.live.journal import Journal
from palmatch.live.keys import Signer, tag_of, verify
from palmatch.live.ops import PrometheusMetrics
from palmatch.live.topics import Topic, table_name
from palmatch.live.transport import Access
from palmatch.studies.live_devices import Faults, Faulty


@pytest.fixture(scope="module")
def members(issuer):
    """Six one-time keys with their tokens."""
    found, der = [], tokens.public_der(issuer)
    for _ in range(6):
        signer = Signer.fresh()
        kept = tokens.request(der, GAME, signer.public)
        blind = tokens.blind_sign(issuer, kept.blinded)
        found.append((signer, tokens.token_of(der, GAME, signer.public, kept, blind)))
    return found


def opening(issuer, protocol="report", **more):
    times = {"joining": 1.0, "preparing": 0.5, "slot": 1.0} | more
    return small_game.opening(issuer, TableRules(), protocol, 1, names=NAMES, **times)


def join_message(signer, token, region="a", epsilon_class=1):
    topic = Topic(GAME, "join")
    content = m.Join(token=token, key=signer.public, region=region, epsilon_class=epsilon_class)
    return topic, signer.packet(topic, content)


async def device(transport, number, signer, token, every=0.2):
    """Join and report, again and again, as a device on a lossy network would."""
    region, table = "ab"[number % 2], None
    where, packet = join_message(signer, token, region)
    place = Topic(GAME, "table", table_name(region, 1))
    while table is None:
        await transport.publish(where, packet)
        table = await transport.value(place, every)
    where = Topic(GAME, "report")
    channel = verify(decode(place, table), BOARD.public).hash
    content = m.Report(sequence=0, tag=tag_of(GAME, signer.public), channel=channel, report=number % REPORTS)
    packet = signer.packet(where, content)
    while True:
        await transport.publish(where, packet)
        await asyncio.sleep(every)


def best(members):
    """Return the best matching of what `device` reports, by trying all."""
    values = {
        region: np.random.default_rng(number).uniform(0.1, 1, (REPORTS, len(NAMES)))
        for number, region in enumerate("ab")
    }
    rows = [values["ab"[number % 2]][number % REPORTS] for number in range(len(members))]
    options = permutations([0, 1, 2, 3, None, None], len(members))
    chosen = max(options, key=lambda option: sum(rows[i][j] for i, j in enumerate(option) if j is not None))
    tags = [tag_of(GAME, signer.public) for signer, _ in members]
    return {tag: NAMES[place] for tag, place in zip(tags, chosen, strict=True) if place is not None}


class Inbox:
    """What the board says of whom it has heard, and when."""

    def __init__(self):
        self.messages: list[m.Heard] = []
        self.times: list[float] = []

    def __call__(self, topic, packet):
        message = decode(topic, packet).message
        assert isinstance(message, m.Heard)
        self.messages.append(message)
        self.times.append(asyncio.get_running_loop().time())


async def test_a_game_goes_from_its_opening_to_a_result_that_can_be_checked(join, tmp_path, issuer, members):
    board_end, listener = await join("board"), Listener()
    await listener.listen(await join())
    devices = [asyncio.create_task(device(await join(), number, *member)) for number, member in enumerate(members)]
    journal = Journal(tmp_path / "board.db")
    board = Board(board_end, BOARD, journal, clock=clock, threads=False)
    result = await board.play(GAME, opening(issuer))
    await asyncio.sleep(0.5)
    for task in devices:
        task.cancel()
    assert result.matched == 4
    assert listener.pairs == best(members)
    assert {item.region: item.transcript for item in result.transcripts} == {
        region: envelope.hash for region, envelope in listener.transcripts.items()
    }
    roster = listener.last["roster"].message
    assert isinstance(roster, m.Roster)
    assert [count.counts for count in roster.regions] == [(0, 3), (0, 3)]
    bulletin = listener.last["bulletin"].message
    assert isinstance(bulletin, m.Bulletin)
    assert bulletin.over
    holders = dict(zip(NAMES, split(bulletin.holders, 8), strict=True))
    assert {name: tag for tag, name in listener.pairs.items()} == holders
    assert not listener.conflicts
    assert journal.unfinished() == []
    journal.close()


@pytest.mark.parametrize("silent", [0, 1])
def test_reports_end_with_the_last_agent_of_the_roster_or_with_their_slot(silent, tmp_path, issuer, members):
    async def main():
        broker = MemoryBroker(0)
        heard, other = Inbox(), Inbox()
        await broker.connect().subscribe(Topic(GAME, "heard", "a"), heard)
        await broker.connect().subscribe(Topic(GAME, "heard", "b"), other)
        tasks = [
            asyncio.create_task(device(broker.connect(), number, *member))
            for number, member in enumerate(members[silent:])
        ]
        journal = Journal(tmp_path / "board.db")
        metrics = PrometheusMetrics()
        board = Board(broker.connect(Access("board")), BOARD, journal, metrics=metrics, clock=clock, threads=False)
        told = asyncio.create_task(board.play(GAME, opening(issuer, slot=50.0)))
        await asyncio.sleep(0.1)
        # These join, and say nothing more.
        for member in members[:silent]:
            await broker.connect().publish(*join_message(*member))
        result = await told
        assert result.matched == 4
        # Devices that were heard are told so before the matching begins.
        last = heard.messages[-1]
        assert (last.sequence, len(last.tags)) == (1, 8 * 3)
        # Those of a region from which all reports have come are told so at once, and once.
        [when] = [when for message, when in zip(other.messages, other.times, strict=True) if message.sequence == 1]
        assert when < 5
        for task in tasks:
            task.cancel()
        journal.close()
        return metrics.value("palmatch_phase_seconds_sum", phase="told")

    seconds = run_virtual(main())
    assert seconds >= 51.5 if silent else seconds < 3


async def test_a_game_goes_on_by_its_own_protocol_and_a_board_that_is_started_with_another_one_says_so(
    virtual, tmp_path, issuer
):
    broker, journal = MemoryBroker(0), Journal(tmp_path / "board.db")
    first = Board(broker.connect(Access("board")), BOARD, journal, clock=clock, threads=False)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(first.play(GAME, opening(issuer)), 0.5)
    other = Board(broker.connect(Access("board")), BOARD, journal, clock=clock, threads=False)
    with pytest.raises(InputError, match=r"under way by `report`, .* --protocol report"):
        await other.play(GAME, opening(issuer, "bids"))
    assert (await other.play(GAME, opening(issuer))).matched == 0
    journal.close()


def test_what_a_board_says_and_whom_it_has_heard_is_written_before_it_is_said(tmp_path, issuer, members, monkeypatch):
    """A board that was killed would say something else the second time, or miss whom it told that it had heard."""
    unwritten: set[bytes] = set()
    heard: set[tuple[int, bytes]] = set()
    said: list[str] = []

    class Watched(Journal):
        def say(self, topic, packet):
            unwritten.add(packet)
            super().say(topic, packet)

        def hear(self, slot, topic, packet):
            message = decode(str(topic), packet).message
            assert isinstance(message, m.Join | m.Report)
            heard.add((slot, tag_of(GAME, message.key) if isinstance(message, m.Join) else message.tag))
            super().hear(slot, topic, packet)

        def commit(self):
            super().commit()
            unwritten.clear()
            heard.clear()

    async def main():
        broker = MemoryBroker(0)
        end = broker.connect(Access("board"))
        publish = end.publish

        async def watched(topic, packet):
            message = decode(str(topic), packet).message
            kind = decode(str(topic), packet).topic.kind
            assert packet not in unwritten, kind
            if isinstance(message, m.Heard):
                assert heard.isdisjoint((message.sequence - 1, tag) for tag in split(message.tags, m.TAG))
                # So slow a broker that others are heard meanwhile, and the next time to say so has passed.
                await asyncio.sleep(0.5)
            said.append(kind)
            await publish(topic, packet)

        monkeypatch.setattr(end, "publish", watched)
        loop = asyncio.get_running_loop()
        for number, member in enumerate(members):
            start = partial(device, broker.connect(), number, *member, every=0.07)
            loop.call_later(0.15 * number, lambda start=start: loop.create_task(start()))
        journal = Watched(tmp_path / "board.db")
        await Board(end, BOARD, journal, clock=clock, threads=False).play(GAME, opening(issuer))
        journal.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    run_virtual(main())
    assert {"open", "roster", "tables", "table", "heard", "result", "transcript"} <= set(said)


async def test_a_join_that_another_key_has_signed_takes_nobodys_place(virtual, tmp_path, issuer, members):
    """The thief comes first: it has read token and key in the traffic, and would put the victim elsewhere."""
    broker, listener = MemoryBroker(0), Listener()
    await listener.listen(broker.connect())
    journal = Journal(tmp_path / "board.db")
    board = Board(broker.connect(Access("board")), BOARD, journal, clock=clock, threads=False)
    game = asyncio.create_task(board.play(GAME, opening(issuer)))
    await asyncio.sleep(0.1)
    thief, (victim, token) = Signer.fresh(), members[0]
    where, stolen = Topic(GAME, "join"), m.Join(token=token, key=victim.public, region="b", epsilon_class=0)
    await broker.connect().publish(where, thief.packet(where, stolen))
    await asyncio.sleep(0.1)
    await broker.connect().publish(*join_message(victim, token))
    await game
    roster = listener.last["roster"].message
    assert isinstance(roster, m.Roster)
    assert [(count.region, count.counts) for count in roster.regions] == [("a", (0, 1))]
    journal.close()


class Killed(BaseException):
    """The board's process ends here."""


class Killer:
    """Ends a board at one of its actions (writes, commits, publications), before or after it has acted."""

    def __init__(self, countdown, after):
        self.countdown, self.after = countdown, after
        self.task: asyncio.Task[m.Result] | None = None

    def watch(self, owner, name):
        act = getattr(owner, name)

        def wrapped(*arguments):
            self.countdown -= 1
            if self.countdown == 0 and not self.after:
                self.kill()
            result = act(*arguments)
            if self.countdown == 0:
                self.kill()
            return result

        async def wrapped_async(*arguments):
            self.countdown -= 1
            if self.countdown == 0 and not self.after:
                self.kill()
            await act(*arguments)
            if self.countdown == 0:
                self.kill()

        setattr(owner, name, wrapped_async if asyncio.iscoroutinefunction(act) else wrapped)

    def kill(self):
        # The action may be in a handler, of which the board's task knows nothing.
        self.task.cancel()
        raise Killed


def play_with_kills(path, kills, issuer, members):
    """Play a game whose board is killed at these actions, one run after the other; return how often it was."""
    listener, killed = Listener(), 0

    async def main():
        nonlocal killed
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        broker = MemoryBroker(0, lambda random: random.uniform(0, 0.05))
        await listener.listen(broker.connect())
        for number, member in enumerate(members):
            asyncio.get_running_loop().create_task(device(broker.connect(), number, *member))
        for countdown, after in [*kills, (0, False)]:
            journal, end, killer = Journal(path), broker.connect(Access("board")), Killer(countdown, after)
            for name in ("commit", "say", "hear", "close_slot", "finish"):
                killer.watch(journal, name)
            killer.watch(end, "_publish")
            board = Board(end, BOARD, journal, clock=clock, threads=False)
            killer.task = asyncio.create_task(board.play(GAME, opening(issuer, joining=0.5, preparing=0.1, slot=0.5)))
            try:
                await killer.task
                break
            except (Killed, asyncio.CancelledError):
                killed += 1
            finally:
                journal.close()
                await end.close()
        await asyncio.sleep(1)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    run_virtual(main())
    return listener, killed


def test_a_board_that_is_killed_at_any_instant_resumes_with_the_same_result(memory_folder, issuer, members):
    expected, number, killed = best(members), 0, 1
    while killed:
        number += 1
        listener, killed = play_with_kills(memory_folder / f"{number}.db", [(number, number % 2 == 1)], issuer, members)
        assert not listener.conflicts, number
        assert listener.pairs == expected, number
    assert number > 50


def test_a_board_that_is_killed_again_and_again_comes_to_the_same_result(memory_folder, issuer, members):
    random = Random(5)
    for number in range(10):
        kills = [(random.randint(1, 40), random.random() < 0.5) for _ in range(6)]
        listener, killed = play_with_kills(memory_folder / f"{number}.db", kills, issuer, members)
        assert killed > 1
        assert not listener.conflicts
        assert listener.pairs == best(members)


def test_reports_that_are_lost_late_or_doubled_come_to_the_same_result(memory_folder, issuer, members):
    async def main(seed):
        broker, listener = MemoryBroker(seed, lambda random: random.uniform(0, 0.05)), Listener()
        await listener.listen(broker.connect())
        faults = Faults(0.2, 0.2, 0.2, delay=0.5)
        tasks = [
            asyncio.create_task(device(Faulty(broker.connect(), faults, Random(seed + number)), number, *member, 0.1))
            for number, member in enumerate(members)
        ]
        journal = Journal(memory_folder / f"{seed}.db")
        board = Board(broker.connect(Access("board")), BOARD, journal, clock=clock, threads=False)
        await board.play(GAME, opening(issuer, joining=3.0, slot=5.0))
        await asyncio.sleep(1)
        journal.close()
        for task in tasks:
            task.cancel()
        return listener

    for seed in range(20):
        listener = run_virtual(main(seed))
        assert listener.pairs == best(members)
        assert not listener.conflicts


def hostile(members, table):
    """What a party without a token could send, and what one with a token may not."""
    thief, (victim, token) = Signer.fresh(), members[0]
    stolen = m.Join(token=token, key=victim.public, region="a", epsilon_class=0)
    tag, report = tag_of(GAME, victim.public), Topic(GAME, "report")
    good = m.Report(sequence=0, tag=tag, channel=table, report=0)
    forged = bytes(354)
    return [
        join_message(thief, token),
        join_message(thief, forged),
        (Topic(GAME, "join"), thief.packet(Topic(GAME, "join"), stolen)),
        (report, thief.packet(report, good)),
        (report, thief.packet(report, m.Report(sequence=0, tag=tag_of(GAME, thief.public), channel=table, report=0))),
        (report, victim.packet(Topic("evening", "report"), good)),
        (report, victim.packet(report, m.Report(sequence=0, tag=tag, channel=table, report=REPORTS))),
        (report, victim.packet(report, m.Report(sequence=0, tag=tag, channel=bytes(32), report=0))),
        (report, bytes(512)),
    ]  # fmt: skip


async def test_a_hostile_client_changes_nothing_for_the_others(join, tmp_path, issuer, members):
    async def attack(transport):
        table = await transport.value(Topic(GAME, "table", "a~1"), 0.3)
        while True:
            found = bytes(32) if table is None else decode(Topic(GAME, "table", "a~1"), table).hash
            for topic, packet in hostile(members, found):
                with suppress(TransportError, ProtocolError):
                    await transport.publish(topic, packet)
            await asyncio.sleep(0.1)
            table = table or await transport.value(Topic(GAME, "table", "a~1"), 0.1)

    board_end, listener = await join("board"), Listener()
    await listener.listen(await join())
    tasks = [asyncio.create_task(attack(await join()))]
    tasks += [asyncio.create_task(device(await join(), number, *member)) for number, member in enumerate(members)]
    journal = Journal(tmp_path / "board.db")
    board = Board(board_end, BOARD, journal, clock=clock, threads=False)
    await board.play(GAME, opening(issuer))
    await asyncio.sleep(0.5)
    for task in tasks:
        task.cancel()
    assert listener.pairs == best(members)
    assert sorted(listener.told) == sorted(tag_of(GAME, signer.public) for signer, _ in members)
    journal.close()


def test_two_boards_cannot_use_one_journal(tmp_path):
    first = Journal(tmp_path / "board.db")
    first.begin("g", bytes(32))
    first.commit()
    with pytest.raises(InputError, match="journal"):
        Journal(tmp_path / "board.db")
    first.close()
    second = Journal(tmp_path / "board.db")
    assert second.unfinished() == ["g"]
    assert second.begin("g", b"x" * 32) == bytes(32)
    second.close()


async def test_a_board_whose_journal_does_not_know_what_was_opened_refuses(virtual, tmp_path):
    broker, journal = MemoryBroker(0), Journal(tmp_path / "board.db")
    board = Board(broker.connect(Access("board")), BOARD, journal, clock=clock, threads=False)
    other = Journal(tmp_path / "other.db")
    assert board.series == journal.series(BOARD.public) != other.series(BOARD.public)
    topic = Topic(f"{board.series}-1", "open")
    await broker.connect(Access("board")).publish(topic, BOARD.packet(topic, MESSAGES["open"]))
    with pytest.raises(InputError, match="an older copy"):
        await board.plan(topic.game)
    name = board.series
    journal.close()
    # It keeps its name.
    again = Journal(tmp_path / "board.db")
    # Also under a key that has replaced the board's.
    assert again.series(bytes(32)) == name
    again.close()
    other.close()
