"""Between the messages on the bus and the records of a device: the same facts, packed here and plain there.

Only shapes are checked, since a record cannot have broken ones; whether a device should act on it is the device's to
decide (`palmatch.device`). Hashes and tags are hexadecimal text in records.
"""

from __future__ import annotations

from typing import Any

from palmatch.device import messages as m
from palmatch.device import records as r
from palmatch.device.messages import Code, split, unpack
from palmatch.device.records import Earlier, Listed, ReportTable, RoundsTable, once_in_game
from palmatch.errors import ProtocolError
from palmatch.live.codec import Envelope, expect
from palmatch.live.topics import Topic

_SAME_IN_OPEN = ("protocol", "partition", "classes", "slot", "slots", "step", "patience", "slack", "growth")

_SAME_IN_ROUNDS = ("truth_selection", "truth_backoff", "gamma", "spent_backoff")
_COUNTS_IN_ROUNDS = ("selection", "backoff", "selection_units", "backoff_units")

# The price of a resource that is sold for good.
SOLD = -1.0


def open_record(envelope: Envelope) -> r.Open:
    """Return the announcement of a game."""
    message = expect(envelope, m.Open)
    return r.Open(
        version=m.VERSION,
        game=envelope.topic.game,
        resources=message.resources.hex(),
        start=message.start / 1000,
        **{name: getattr(message, name) for name in _SAME_IN_OPEN},
    )


@once_in_game
def roster_record(opened: Envelope, roster: Envelope, tables: Envelope) -> tuple[r.Roster, str]:
    """Return the counts with the hashes of their tables, and a digest of both messages; they must name each other."""
    opening, counts = expect(opened, m.Open), expect(roster, m.Roster)
    listed = expect(tables, m.Tables)
    if counts.opened != opened.hash or listed.roster != roster.hash:
        raise ProtocolError("The roster is not that of this opening, or the tables are not that of this roster.")
    hashes = {(item.region, item.epsilon_class): item.table.hex() for item in listed.tables}
    found = []
    for count in counts.regions:
        if len(count.counts) != len(opening.classes):
            raise ProtocolError("The roster does not count every ε class.")
        for number, agents in enumerate(count.counts):
            if agents and (count.region, number) in hashes:
                table = hashes[count.region, number]
                found.append(r.Count(count.region, opening.classes[number], agents, table))
    return r.Roster(opened.topic.game, tuple(found)), roster.hash.hex() + tables.hash.hex()


def is_member(members: Envelope, roster: Envelope, tag: bytes, epsilon_class: int) -> bool:
    """Tell whether a region's list, which the roster must name, has this tag in this ε class."""
    return (tag, epsilon_class) in _members_of(members, roster)


@once_in_game
def _members_of(members: Envelope, roster: Envelope) -> frozenset[tuple[bytes, int]]:
    """Return the tags of a region with their ε classes, once the roster is found to name and count them."""
    listed, counts = expect(members, m.Members), expect(roster, m.Roster)
    named = next((count for count in counts.regions if count.region == listed.region), None)
    if named is None or named.members != members.hash or len(listed.tags) != m.TAG * len(listed.classes):
        raise ProtocolError("The list of a region's members is not the one that the roster names.")
    if any(named.counts[number] != listed.classes.count(number) for number in range(len(named.counts))):
        raise ProtocolError("The roster's counts are not those of the list of members.")
    return frozenset(zip(split(listed.tags, m.TAG), listed.classes, strict=True))


@once_in_game
def heard_tags(envelope: Envelope) -> tuple[int, frozenset[bytes]]:
    """Return which message of its devices the board has heard, by its sequence number, and of which tags."""
    heard = expect(envelope, m.Heard)
    return heard.sequence, frozenset(split(heard.tags, m.TAG))


@once_in_game
def table_record(envelope: Envelope) -> ReportTable | RoundsTable:
    """Return a table as a device checks it."""
    table = expect(envelope, m.Table)
    if table.channel is not None:
        return _report_table(envelope.topic.game, table, table.channel)
    if table.rounds is not None:
        return _rounds_table(envelope.topic.game, table, table.rounds)
    raise ProtocolError("The table is empty.")


@once_in_game
def bulletin_record(envelope: Envelope) -> r.Bulletin:
    """Return a bulletin: None for a free resource, and for the price of one that is sold for good."""
    message = expect(envelope, m.Bulletin)
    return r.Bulletin(
        game=envelope.topic.game,
        region=message.region,
        sequence=message.sequence,
        previous=message.previous.hex(),
        holders=tuple(tag.hex() if any(tag) else None for tag in split(message.holders, m.TAG)),
        call=message.call,
        prices=tuple(None if price == SOLD else price for price in unpack("d", message.prices)),
        attempted=tuple(map(bool, message.attempted)),
        over=message.over,
    )


@once_in_game
def result_record(opened: Envelope, roster: Envelope, result: Envelope, transcript: Envelope) -> r.Result:
    """Return the result that a region's transcript holds; agents that sent no report are not in it."""
    opening, counts = expect(opened, m.Open), expect(roster, m.Roster)
    ended, message = expect(result, m.Result), expect(transcript, m.Transcript)
    named = m.RegionTranscript(region=transcript.topic.name or "", transcript=transcript.hash)
    if named not in ended.transcripts or ended.roster != roster.hash:
        raise ProtocolError("The transcript is not the one that the result names.")
    names = message.resources
    columns = (
        split(message.tags, m.TAG),
        [int(number) for number in unpack("I", message.region)],
        list(message.epsilon_class),
        [int(number) for number in unpack("i", message.channel)],
        [int(number) for number in unpack("i", message.reports)],
        [int(number) for number in unpack("i", message.assigned)],
    )
    prices = unpack("d", message.prices)
    if len({len(column) for column in columns}) != 1 or len(prices) != len(names):
        raise ProtocolError("The transcript does not have one line for each agent and one price for each resource.")
    lines = []
    for tag, region, number, channel, report, place in zip(*columns, strict=True):
        if report < 0 or channel < 0:
            continue
        if region >= len(counts.regions) or channel >= len(message.channels) or place >= len(names):
            raise ProtocolError("The transcript names a region, table or resource that there is not.")
        epsilon = opening.classes[number] if number < len(opening.classes) else -1.0
        got = names[place] if place >= 0 else None
        found, place_of = message.channels[channel].hex(), counts.regions[region].region
        lines.append(r.Assigned(tag.hex(), place_of, epsilon, found, report, got))
    return r.Result(opened.topic.game, tuple(lines), tuple(zip(names, prices, strict=True)))


def holders(transcript: m.Transcript) -> dict[str, bytes]:
    """Return the agent of each resource of a transcript that has one."""
    tags, numbers = split(transcript.tags, m.TAG), unpack("i", transcript.assigned)
    if len(tags) != len(numbers) or any(number >= len(transcript.resources) for number in numbers):
        raise ProtocolError("The transcript does not have one resource of its list, or none, for each agent.")
    held = [(transcript.resources[int(place)], tag) for tag, place in zip(tags, numbers, strict=True) if place >= 0]
    if len(dict(held)) < len(held):
        raise ProtocolError("The transcript gives a resource away twice.")
    return dict(held)


def join_message(record: r.Join, opening: m.Open, token: bytes, key: bytes) -> tuple[Topic, m.Join]:
    """Return what a device joins with."""
    number = opening.classes.index(record.epsilon)
    message = m.Join(token=token, key=key, region=record.region, epsilon_class=number)
    return Topic(record.game, "join"), message


def spoken_message(record: r.Report | r.Bid | r.Claim) -> tuple[Topic, m.Message]:
    """Return a device's report, bid or claim."""
    tag = bytes.fromhex(record.tag)
    match record:
        case r.Report():
            channel = bytes.fromhex(record.channel)
            message = m.Report(sequence=record.sequence, tag=tag, channel=channel, report=record.report)
            return Topic(record.game, "report"), message
        case r.Bid():
            bid = m.Bid(sequence=record.sequence, tag=tag, offer=record.offer)
            return Topic(record.game, "bid", record.resource), bid
        case r.Claim():
            return Topic(record.game, "claim", record.resource), m.Claim(sequence=record.sequence, tag=tag)


def _report_table(game: str, table: m.Table, channel: m.Channel) -> ReportTable:
    width = len(table.resources)
    values = _rows("d", channel.values, width)
    return ReportTable(
        **_common(game, table),
        cell_of=_wholes("I", channel.cell_of),
        chances=tuple(tuple(map(int, row)) for row in _rows("Q", channel.chances, len(values))),
        values=values,
        opening=tuple(unpack("d", channel.opening)),
        earlier=tuple(Earlier(item.channel.hex(), _rows("d", item.values, width)) for item in channel.earlier),
    )


def _rounds_table(game: str, table: m.Table, rounds: m.RoundsTable) -> RoundsTable:
    same: dict[str, Any] = {name: getattr(rounds, name) for name in _SAME_IN_ROUNDS}
    same |= {name: _wholes("Q", getattr(rounds, name)) for name in _COUNTS_IN_ROUNDS}
    return RoundsTable(
        **_common(game, table),
        **same,
        utilities=_rows("d", rounds.utilities, len(table.resources)),
        offsets=_wholes("I", rounds.offsets),
        entries=_wholes("I", rounds.entries),
    )


def _common(game: str, table: m.Table) -> dict[str, Any]:
    """Return what both kinds of tables have."""
    same = {name: getattr(table, name) for name in ("region", "epsilon", "resources")}
    return {"game": game, "listed": listed_record(table.listed), **same}


def listed_record(proof: m.Listed | None) -> Listed | None:
    """Return the proof that the resources of a table are on the list, if it has one."""
    if proof is None:
        return None
    return Listed(
        size=proof.size,
        places=_wholes("I", proof.places),
        hashes=tuple(item.hex() for item in split(proof.hashes, m.HASH)),
        positions=proof.positions.hex(),
    )


def _rows(code: Code, packed: bytes, width: int) -> tuple[tuple[float, ...], ...]:
    numbers = unpack(code, packed)
    if width < 1 or not numbers or len(numbers) % width:
        raise ProtocolError(f"Expected rows of {width} numbers, found {len(numbers)} numbers.")
    return tuple(tuple(numbers[start : start + width]) for start in range(0, len(numbers), width))


def _wholes(code: Code, packed: bytes) -> tuple[int, ...]:
    return tuple(map(int, unpack(code, packed)))
