"""The board: opens games, fixes rosters and tables, closes slots, publishes results. It is trusted with nothing.

The order of a game is here, for all three protocols; what a table holds and what a slot comes to are for `Rules`, which
see public things only: counts, reports, offers, attempts. Every statement is in the journal before it is on the bus, so
that a board that was killed says the same again and goes on. `Game` is a game under way, as its board knows it;
`transcripts` is what is published of its matching, region by region.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from palmatch.device import messages as m
from palmatch.device.messages import pack
from palmatch.device.state import ACKNOWLEDGED
from palmatch.errors import InputError, ProtocolError, TransportError
from palmatch.live import tokens
from palmatch.live.codec import Envelope, decode, sequence_of
from palmatch.live.journal import KEPT_GAMES, Held, Journal
from palmatch.live.keys import Signer, tag_of, verify
from palmatch.live.listing import ListTree
from palmatch.live.ops import Metrics, Tasks, steady
from palmatch.live.rules import Accepted, Crowd, Opening, Outcome, RegionUpdate, Rules
from palmatch.live.topics import Topic, number_of, table_name
from palmatch.live.transport.base import AGAIN_SECONDS, Transport

_LOG = logging.getLogger(__name__)

_Value = TypeVar("_Value")

# What a game goes through, each with the time of its end in the metrics.
PHASES = ("joined", "prepared", "told", "published")
_KIND = {"report": "report", "bids": "bid", "rounds": "claim"}
# What a board that was killed may lose of what it was told; devices send again.
_COMMIT_SECONDS = 0.1
# What is retained comes at once.
_FOUND_SECONDS = 0.5


def older_journal(game: str) -> str:
    """Say that a journal was put back which does not know the last games."""
    return (
        f"{game} was opened before, and the board's journal does not know it: it is an older copy, and would give names"
        " of games a second time. Put back the newest one, or remove board.db, so that games get new names."
    )


class Board:
    """A board on a transport.

    `clock` gives the time of day in seconds, which the schedule is written in. With `threads` the method is computed
    beside the event loop; in virtual time it cannot be.
    """

    def __init__(
        self,
        transport: Transport,
        signer: Signer,
        journal: Journal,
        *,
        metrics: Metrics | None = None,
        clock: Callable[[], float] = time.time,
        threads: bool = True,
    ) -> None:
        self.transport, self.signer, self.journal = transport, signer, journal
        self.metrics = metrics or Metrics()
        self._time_of_day = self._clock = clock
        self._threads = threads
        self._statements: dict[tuple[str, int], Envelope] = {}
        self._pending: list[tuple[Topic, bytes]] = []
        self._game: Game | None = None
        self._recent: deque[str] = deque(maxlen=KEPT_GAMES)
        # What keeps it from going on, in two words; and whether it is between slots, where it can be ended.
        self.trouble = ""
        self.settled = asyncio.Event()
        self.settled.set()
        self._planned: dict[Topic, bytes] = {}
        self._tasks = Tasks()
        # The broker may have lost what it retained.
        transport.on_connect(lambda: self._tasks.start(self._publish_all()))

    async def play(self, name: str, opening: Opening) -> m.Result:
        """Play a game from its opening to its result; one that the journal knows is resumed where it was."""
        # A game is played by one steady clock.
        self._clock = steady(self._time_of_day)
        randomness = self.journal.begin(name, secrets.token_bytes(32))
        if name not in self._recent:
            self._recent.append(name)
        self._statements = {(str(item.topic), sequence_of(item)): item for item in self.journal.said(name)}
        game = self._game = self._opened(name, randomness, opening)
        try:
            self.journal.commit()
            self._pending.clear()
            await self._publish_again(name)
            kind = _KIND[game.opening.protocol]
            told = [f"{Topic(name, 'join')}", f"{Topic(name, kind)}" if kind == "report" else f"pm/1/{name}/{kind}/+"]
            for pattern in told:
                await self._retry_until_connected(partial(self.transport.subscribe, pattern, self._receive))
            await self._join(game)
            self._phase(game, "joined")
            await self._prepare(game, randomness)
            self._phase(game, "prepared")
            await self._publish_bulletins(game, 0, game.rules.begin(), over=False)
            for slot in range(game.opening.slots):
                self.settled.clear()
                if await self._slot(game, slot):
                    break
                self.settled.set()
                # What waits for that comes first.
                await asyncio.sleep(0)
            self._phase(game, "told")
            result = await self._finish(game)
            self._phase(game, "published")
            for pattern in told:
                await self.transport.unsubscribe(pattern, self._receive)
            return result
        finally:
            self._game = None
            self._pending.clear()
            self.settled.set()

    @property
    def series(self) -> str:
        """What the names of all games of this board with this journal begin with."""
        return self.journal.series(self.signer.public)

    async def plan(self, *names: str) -> None:
        """Ask the issuer for its key for games to come; a name that was opened already is refused."""
        if not self._planned:
            opened = await self._retry_until_connected(
                lambda: self.transport.value(Topic(names[0], "open"), _FOUND_SECONDS)
            )
            if opened is not None:
                raise InputError(older_journal(names[0]))
        for name in names:
            topic = Topic(name, "planned")
            if topic not in self._planned:
                packet = self._planned[topic] = self.signer.packet(topic, m.Planned(number=number_of(name)[1]))
                await self._retry_until_connected(partial(self.transport.publish, topic, packet))

    def _phase(self, game: Game, name: str) -> None:
        self.metrics.observe("palmatch_phase_seconds", self._clock() - game.began, phase=name)

    async def recall(self) -> None:
        """Publish the last games that are over once more: a hub that ended with the board has lost them."""
        for name in reversed(self.journal.finished()[-KEPT_GAMES:]):
            self._recent.appendleft(name)
            await self._publish_again(name)

    async def forget(self, name: str) -> None:
        """Have a game that is over forgotten, by the broker and by the journal."""
        self._planned.pop(planned := Topic(name, "planned"), None)
        await self.transport.clear(planned)
        for topic, _ in self.journal.packets(name):
            await self.transport.clear(topic)
        self.journal.forget(name)
        self.journal.commit()
        if name in self._recent:
            self._recent.remove(name)

    # --- opening -----------------------------------------------------------------------------------------------

    def _opened(self, name: str, randomness: bytes, opening: Opening) -> Game:
        """Open a game, or read its opening from the journal."""
        tree = ListTree(opening.resources)
        known = self._statements.get((str(Topic(name, "open")), 0))
        if known is not None:
            assert isinstance(known.message, m.Open)
            if known.message.protocol != opening.content.protocol:
                raise InputError(
                    f"{name} is under way by `{known.message.protocol}`, and this board is started with `"
                    f"{opening.content.protocol}`: start it with --protocol {known.message.protocol} until that game "
                    "is over."
                )
            return Game(name, known.message, known.hash, tree, opening.rules, self._clock())
        self._publish_signed(Topic(name, "resources"), opening.resources)
        began = self._clock()
        content = replace(
            opening.content,
            joins_close=int(began * 1000) + opening.content.joins_close,
            start=int(began * 1000) + opening.content.start,
            resources=tree.root,
            commitment=hashlib.sha256(randomness).digest(),
        )
        said = self._publish_signed(Topic(name, "open"), content)
        return Game(name, content, said.hash, tree, opening.rules, began)

    # --- joining -----------------------------------------------------------------------------------------------

    async def _join(self, game: Game) -> None:
        for envelope in self.journal.told(game.name, JOINING):
            self._accept_join(game, envelope)
        if self.journal.is_closed(game.name, JOINING):
            return
        game.accepting = True
        await self._listen(game, game.began, game.opening.joins_close / 1000)
        await self._closed(game)

    def _accept_join(self, game: Game, envelope: Envelope) -> bool:
        join = envelope.message
        assert isinstance(join, m.Join)
        tag = tag_of(game.name, join.key)
        if tag in game.joins:
            return False
        verify(envelope, join.key)
        # Before anything else: to look for a region takes much longer, and any client can name one.
        if not tokens.is_valid(game.opening.issuer, game.name, join.key, join.token):
            raise ProtocolError("The token is not valid for this game and key.")
        if join.epsilon_class >= len(game.opening.classes):
            raise ProtocolError("There is no such ε class in this game.")
        if not game.rules.has_region(join.region):
            raise ProtocolError("There is no such region.")
        game.joins[tag], game.keys[tag] = join, join.key
        return True

    # --- roster and tables ---------------------------------------------------------------------------------------

    async def _prepare(self, game: Game, randomness: bytes) -> None:
        """Fix the roster, compute the tables from it, publish both."""
        members = members_of(game)
        game.missing.update(join.region for join in game.joins.values())
        roster = self._publish_roster(game, members, randomness)
        game.roster = roster.hash
        await self._flush()
        crowd = Crowd(game.name, roster.hash, game.opening.classes, members, randomness)
        tables = await self.compute(lambda: game.tree.shown(game.rules.tables(crowd)))
        for (region, number), table in sorted(tables.items()):
            topic = Topic(game.name, "table", table_name(region, number))
            game.tables[region, number] = (self._publish_signed(topic, table).hash, table)
        hashes = [
            m.TableHash(region=region, epsilon_class=number, table=found)
            for (region, number), (found, _) in sorted(game.tables.items())
        ]
        self._publish_signed(Topic(game.name, "tables"), m.Tables(roster=roster.hash, tables=tuple(hashes)))
        await self._flush()

    def _publish_roster(
        self, game: Game, members: Mapping[tuple[str, int], tuple[bytes, ...]], randomness: bytes
    ) -> Envelope:
        counts = []
        for region in sorted({region for region, _ in members}):
            listed = sorted(
                (tag, number) for (found, number), tags in members.items() if found == region for tag in tags
            )
            content = m.Members(
                region=region,
                tags=b"".join(tag for tag, _ in listed),
                classes=bytes(number for _, number in listed),
            )
            envelope = self._publish_signed(Topic(game.name, "members", region), content)
            numbers = range(len(game.opening.classes))
            count = tuple(len(members.get((region, number), ())) for number in numbers)
            counts.append(m.RegionCount(region=region, counts=count, members=envelope.hash))
        content_of_all = m.Roster(opened=game.opened, randomness=randomness, regions=tuple(counts))
        return self._publish_signed(Topic(game.name, "roster"), content_of_all)

    # --- slots ---------------------------------------------------------------------------------------------------

    async def _slot(self, game: Game, slot: int) -> bool:
        """Collect what is told in a slot, close it, and publish what it came to; tell whether the game is over."""
        game.slot = slot
        game.heard.clear()
        game.said.clear()
        if game.opening.protocol != "report":
            game.spoken.clear()
        for envelope in self.journal.told(game.name, slot):
            if self._accept(game, envelope):
                game.said.append(said_of(envelope))
        if not self.journal.is_closed(game.name, slot):
            game.accepting = True
            # A slot lasts its whole length after the bulletin before it, also after a restart.
            began = max(game.opening.start / 1000, self._clock())
            if game.opening.protocol == "report":
                await self._listen(game, began, began + game.opening.slot)
            else:
                await self._until(began + game.opening.slot, game)
            await self._closed(game)
        regional, over = await self.compute(lambda: game.rules.close(slot, game.said))
        over = over or slot + 1 == game.opening.slots
        await self._publish_bulletins(game, slot + 1, regional, over)
        return over

    async def _listen(self, game: Game, began: float, until: float) -> None:
        """Wait for joins or reports, and say meanwhile whom the board has heard: those need not send again.

        Reports end with the last agent of the roster: no other report can count. When that one comes depends on
        offsets that devices drew beforehand, not on what they say.
        """
        for share in ACKNOWLEDGED:
            await self._until(began + share * (until - began), game)
            await self._acknowledge(game)
        await self._until(until, game)

    async def _acknowledge(self, game: Game, only: set[str] | None = None) -> None:
        # Before it is said: what is lost with the board would not be sent again.
        self.journal.commit()
        # Without a broker devices send again.
        with suppress(TransportError):
            for region, tags in sorted(game.heard_of(only).items()):
                place = (game.slot, region)
                if game.acknowledged.get(place) == len(tags):
                    continue
                heard = m.Heard(region=region, sequence=game.slot - JOINING, tags=b"".join(sorted(tags)))
                topic = Topic(game.name, "heard", region)
                await self.transport.publish(topic, self.signer.packet(topic, heard))
                game.acknowledged[place] = len(tags)

    async def _closed(self, game: Game) -> None:
        """Close a slot: what the broker had received before the marker counts, and nothing else."""
        if not game.complete:
            await self._retry_until_connected(lambda: self.transport.fence(game.name, self.signer))
        game.accepting = False
        self.journal.close_slot(game.name, game.slot)
        self.journal.commit()

    def _accept(self, game: Game, envelope: Envelope) -> bool:
        """Check a report, bid or claim; tell whether it is new."""
        message = envelope.message
        assert isinstance(message, m.Report | m.Bid | m.Claim)
        key = game.keys.get(message.tag)
        if key is None:
            raise ProtocolError("The tag is not on the roster.")
        # One report, or one bid or claim in a slot.
        if message.tag in game.spoken:
            return False
        if not isinstance(message, m.Report) and message.sequence != game.slot + 1:
            return False
        verify(envelope, key)
        if isinstance(message, m.Report):
            self._check_report(game, message)
        game.spoken.add(message.tag)
        if isinstance(message, m.Report):
            game.reported(message.tag)
        return True

    def _check_report(self, game: Game, message: m.Report) -> None:
        join = game.joins[message.tag]
        found, table = game.tables[join.region, join.epsilon_class]
        if table.channel is None:
            raise ProtocolError("There are no reports in this game.")
        rows = {found: table.channel.values} | {item.channel: item.values for item in table.channel.earlier}
        width = 8 * len(table.resources)
        if message.report >= len(rows.get(message.channel, b"")) // max(width, 1):
            raise ProtocolError("There is no such report in the table that it names.")

    async def _publish_bulletins(
        self, game: Game, sequence: int, regional: Mapping[str, RegionUpdate], over: bool
    ) -> None:
        for region, part in sorted(regional.items()):
            content = m.Bulletin(
                region=region,
                sequence=sequence,
                previous=game.chain.get(region, (0, bytes(m.HASH)))[1],
                holders=b"".join(tag or bytes(m.TAG) for tag in part.holders),
                call=part.call,
                prices=pack("d", part.prices),
                attempted=bytes(part.attempted),
                over=over,
            )
            game.chain[region] = (sequence, self._publish_signed(Topic(game.name, "bulletin", region), content).hash)
        await self._flush()

    # --- the end -------------------------------------------------------------------------------------------------

    async def _finish(self, game: Game) -> m.Result:
        outcome = await self.compute(game.rules.outcome)
        listed = {region: table.resources for (region, _), (_, table) in game.tables.items()}
        parts = tuple(
            m.RegionTranscript(
                region=region, transcript=self._publish_signed(Topic(game.name, "transcript", region), part).hash
            )
            for region, part in transcripts(game.opening.method, game.joins, listed, outcome)
        )
        heads = tuple(
            m.RegionHead(region=region, sequence=sequence, bulletin=found)
            for region, (sequence, found) in sorted(game.chain.items())
        )
        result = m.Result(roster=game.roster, matched=len(outcome.holders), transcripts=parts, bulletins=heads)
        self._publish_signed(Topic(game.name, "result"), result)
        await self._flush()
        # Over only once the broker has it: what was written to a socket may still be lost with the process.
        await self._retry_until_connected(lambda: self.transport.fence(game.name, self.signer))
        for name, tag in outcome.holders.items():
            self.journal.hold(Held(game.name, name, tag, game.keys[tag], self._clock()))
        self.journal.finish(game.name)
        self.journal.commit()
        self.metrics.add("palmatch_games_total")
        self.metrics.add("palmatch_agents_total", len(game.joins))
        self.metrics.add("palmatch_agents_matched_total", result.matched)
        _LOG.info("game over", extra={"game": game.name, "matched": result.matched, "agents": len(game.joins)})
        return result

    # --- the bus -------------------------------------------------------------------------------------------------

    def _receive(self, topic: str, packet: bytes) -> None:
        """Take a message of a device into the journal, if it is for now and as it should be."""
        game = self._game
        if game is None or not game.accepting or packet in game.heard:
            return
        envelope = decode(topic, packet)
        if envelope.topic.game != game.name:
            return
        try:
            if isinstance(envelope.message, m.Join):
                new = game.slot == JOINING and self._accept_join(game, envelope)
            else:
                new = game.slot != JOINING and self._accept(game, envelope)
        except ProtocolError as error:
            _LOG.warning("refused", extra={"game": game.name, "kind": envelope.topic.kind, "reason": str(error)})
            self.metrics.add("palmatch_refused_total", reason=envelope.topic.kind)
            return
        if new:
            self.metrics.add("palmatch_accepted_total", kind=envelope.topic.kind)
            self.journal.hear(game.slot, envelope.topic, packet)
            game.heard.add(packet)
            game.news.set()
            if game.slot != JOINING:
                game.said.append(said_of(envelope))

    def _publish_signed(self, topic: Topic, message: m.Message) -> Envelope:
        """Sign a statement and write it down, to be published after the next commit; what was said stays as it was."""
        place = (str(topic), message.sequence if isinstance(message, m.Bulletin) else 0)
        if place not in self._statements:
            packet, self._statements[place] = self.signer.said(topic, message)
            self.journal.say(topic, packet)
            self._pending.append((topic, packet))
        return self._statements[place]

    async def _flush(self) -> None:
        """Write ahead, then publish."""
        self.journal.commit()
        while self._pending:
            topic, packet = self._pending[0]
            await self._retry_until_connected(partial(self.transport.publish, topic, packet))
            self._pending.pop(0)

    async def told(self, topic: Topic, patience: float) -> bytes | None:
        """Return a retained value that another party publishes, or None if there is a broker but no value in time."""
        return await self._retry_until_connected(lambda: self.transport.value(topic, patience))

    async def _retry_until_connected(self, action: Callable[[], Awaitable[_Value]]) -> _Value:
        """Do it, again and again while there is no broker: a game waits for its broker, however long that takes."""
        while True:
            try:
                done = await action()
            except TransportError as error:
                if self.transport.closed:
                    raise
                self.trouble = "no broker"
                _LOG.warning("no broker", extra={"reason": str(error)})
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                if self.trouble == "no broker":
                    self.trouble = ""
                return done

    async def _publish_again(self, name: str) -> None:
        # Without a connection, all of it is published with the next one.
        with suppress(TransportError):
            for topic, packet in self.journal.packets(name):
                await self.transport.publish(topic, packet)

    async def _publish_all(self) -> None:
        """Publish everything again."""
        with suppress(TransportError):
            for topic, packet in self._planned.items():
                await self.transport.publish(topic, packet)
        # The game under way first.
        for name in reversed(list(self._recent)):
            await self._publish_again(name)

    async def compute(self, work: Callable[[], _Value]) -> _Value:
        """Return what some work gives that may take long, while the board answers; in a simulation, at once."""
        return await asyncio.to_thread(work) if self._threads else work()

    async def _until(self, when: float, game: Game) -> None:
        """Wait, and make what comes in last meanwhile; not for reports when all of them are here."""
        while (left := when - self._clock()) > 0 and not game.complete:
            game.news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await game.news.wait()
            await asyncio.sleep(min(max(when - self._clock(), 0.0), _COMMIT_SECONDS))
            self.journal.commit()
            if game.complete_regions and not game.complete:
                # At once: where tables were late devices have less time, and would send again before the next share.
                regions, game.complete_regions = game.complete_regions, set()
                await self._acknowledge(game, regions)


# The slot of the joins, which comes before the first one.
JOINING = -1


@dataclass(slots=True)
class Game:
    """A game under way."""

    name: str
    opening: m.Open
    opened: bytes
    tree: ListTree
    rules: Rules
    # When the game was opened, or resumed.
    began: float
    keys: dict[bytes, bytes] = field(default_factory=dict)
    joins: dict[bytes, m.Join] = field(default_factory=dict)
    slot: int = JOINING
    accepting: bool = False
    # The tags that have spoken in this slot, or at all for a report.
    spoken: set[bytes] = field(default_factory=set)
    # What was accepted in this slot: the packets, whose copies need no look, and what they say.
    heard: set[bytes] = field(default_factory=set)
    said: list[Accepted] = field(default_factory=list)
    # Set when something was accepted that is not in the journal for good yet.
    news: asyncio.Event = field(default_factory=asyncio.Event)
    # How many of a slot and region devices were told that they were heard.
    acknowledged: dict[tuple[int, str], int] = field(default_factory=dict)
    roster: bytes = b""
    # The last bulletin of each region: its number and hash.
    chain: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    tables: dict[tuple[str, int], tuple[bytes, m.Table]] = field(default_factory=dict)
    # How many agents of each region have not reported yet; and the regions of which the last one just has.
    missing: Counter[str] = field(default_factory=Counter)
    complete_regions: set[str] = field(default_factory=set)

    @property
    def complete(self) -> bool:
        """Whether every agent of the roster has reported."""
        return self.opening.protocol == "report" and self.slot >= 0 and len(self.spoken) == len(self.joins)

    def reported(self, tag: bytes) -> None:
        """Take note of an agent's report."""
        region = self.joins[tag].region
        self.missing[region] -= 1
        if self.missing[region] == 0:
            self.complete_regions.add(region)

    def heard_of(self, only: set[str] | None = None) -> dict[str, list[bytes]]:
        """Return the agents of each region, or of some, that have joined or, in a slot, have spoken."""
        found: dict[str, list[bytes]] = {}
        for tag in self.joins if self.slot == JOINING else self.spoken:
            region = self.joins[tag].region
            if only is None or region in only:
                found.setdefault(region, []).append(tag)
        return found


def members_of(game: Game) -> dict[tuple[str, int], tuple[bytes, ...]]:
    """Return the agents of each region and ε class that have joined."""
    found: dict[tuple[str, int], list[bytes]] = {}
    for tag, join in sorted(game.joins.items()):
        found.setdefault((join.region, join.epsilon_class), []).append(tag)
    return {place: tuple(tags) for place, tags in found.items()}


def said_of(envelope: Envelope) -> Accepted:
    """Return what an accepted message says."""
    message = envelope.message
    assert isinstance(message, m.Report | m.Bid | m.Claim)
    return Accepted(message.tag, message, envelope.topic.name)


def transcripts(
    method: str, joins: Mapping[bytes, m.Join], listed: Mapping[str, Sequence[str]], outcome: Outcome
) -> Iterator[tuple[str, m.Transcript]]:
    """Return each region's transcript: its agents, and those of other regions that hold what its table lists."""
    agents: dict[str, list[bytes]] = {}
    for tag, join in joins.items():
        agents.setdefault(join.region, []).append(tag)
    got = {tag: name for name, tag in outcome.holders.items()}
    number = {region: place for place, region in enumerate(sorted(agents))}
    for region in sorted(agents):
        held = (name for name in listed[region] if name in outcome.holders)
        tags = sorted({*agents[region], *(outcome.holders[name] for name in held)})
        names = tuple(dict.fromkeys((*listed[region], *(got[tag] for tag in tags if tag in got))))
        place, own = {name: index for index, name in enumerate(names)}, [joins[tag] for tag in tags]
        reported = [outcome.reports.get(tag) for tag in tags]
        channels = sorted({found[0] for found in reported if found is not None})
        number_of = {channel: index for index, channel in enumerate(channels)}
        yield (
            region,
            m.Transcript(
                method=method,
                resources=names,
                tags=b"".join(tags),
                region=pack("I", [number[join.region] for join in own]),
                epsilon_class=bytes(join.epsilon_class for join in own),
                channels=tuple(channels),
                channel=pack("i", [-1 if found is None else number_of[found[0]] for found in reported]),
                reports=pack("i", [-1 if found is None else found[1] for found in reported]),
                assigned=pack("i", [place[got[tag]] if tag in got else -1 for tag in tags]),
                prices=pack("d", [outcome.prices.get(name, 0.0) for name in names]),
            ),
        )
