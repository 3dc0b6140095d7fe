"""What captured traffic of one game tells, as the black-box tests read it: symbols from coarse to fine, and numbers.

Everything that a wire-tapper at the broker has is in here, of the target and of all others: contents, sizes, order and
times. It is computed from the packets alone.
"""

from hashlib import blake2b
from itertools import compress
from zlib import crc32

import numpy as np

from live.wire.games import Captured
from palmatch.device import messages as m
from palmatch.errors import ProtocolError
from palmatch.live.codec import decode
from palmatch.live.topics import KINDS, Topic
from palmatch.live.transport.exchange import Op, Seen, frame
from palmatch.problem import FloatArray
from palmatch.studies.blackbox import Observation, refined

CHAINS = ("contents", "sizes", "times", "contents with times", "all traffic")

# Of the target's packets so many are looked at one by one; a game has some 30.
_PACKETS = 48
_BUCKETS = 16
# Times are told apart to shares of this, in seconds.
_COARSE, _FINE = 0.4, 0.05
# What depends on the truth.
_DECIDED = ("report", "bid", "claim")
_OPS = {"publish": Op.PUBLISH, "subscribe": Op.SUBSCRIBE, "unsubscribe": Op.UNSUBSCRIBE}


def observe_wire(captured: Captured) -> Observation:
    """Return what was seen of a game."""
    contents = [_content(one) for one in captured.packets]
    is_own = [one.client == captured.target for one in captured.packets]
    own, said = list(compress(captured.packets, is_own)), list(compress(contents, is_own))
    others = tuple(content for content, mine in zip(contents, is_own, strict=True) if not mine)
    sizes = [_size(one) for one in own]
    began = captured.packets[0].time
    waits = [one.time - before for one, before in zip(own, _before(captured), strict=True)]
    sent = [one.time - began for one in own if one.op == "publish"]
    # What it first said of what it had decided, and when.
    decided = [
        (content, *(round((one.time - began) / step) for step in (_COARSE, _FINE)))
        for one, content in zip(own, said, strict=True)
        if one.op == "publish" and Topic.parse(one.topic).kind in _DECIDED
    ]
    everything = hash(tuple((one.client, content) for one, content in zip(captured.packets, contents, strict=True)))
    chains = (
        refined(*said[:_PACKETS], hash(tuple(said))),
        refined(len(own), hash(tuple(sizes))),
        refined(*(round(time / step) for step in (_COARSE, _FINE) for time in sent[:8])),
        refined(*(decided[0] if decided else ())),
        refined(hash(tuple(said)), hash(tuple(sizes)), hash(others), everything),
    )
    return Observation(chains, tuple(said), _numbers(captured, own, said, sizes, waits))


def _content(one: Seen) -> int:
    """Return a symbol for what a packet says; ciphertexts, hashes and signatures are new in every game."""
    try:
        message = decode(one.topic, one.packet).message if one.packet else None
    except ProtocolError:
        return _symbol(one.op, one.topic, len(one.packet))
    match message:
        case m.Report():
            return _symbol(one.op, one.topic, message.report)
        case m.Bid() | m.Claim():
            return _symbol(one.op, one.topic, message)
        case m.Bulletin():
            return _symbol(one.topic, message.sequence, message.holders, message.prices, message.attempted)
        case m.Transcript():
            return _symbol(one.topic, message.reports, message.assigned, message.prices)
        case _:
            return _symbol(one.op, one.topic)


def _symbol(*parts: object) -> int:
    """Return a number for some facts, the same one in every process: Python's own hash of a text is not."""
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=7).digest())


def _size(one: Seen) -> int:
    """Return how many bytes of a frame there were."""
    return len(frame(_OPS[one.op], one.topic, one.packet))


def _before(captured: Captured) -> list[float]:
    """Return, for each packet of the target, when an agent else was last heard: it may have been an answer to that."""
    last, found = captured.packets[0].time, []
    for one in captured.packets:
        if one.client == captured.target:
            found.append(last)
        else:
            last = one.time
    return found


def _answered(captured: Captured) -> FloatArray:
    """Return, for each thing that the target asks for, how long after the board's last statement it last did."""
    last, found = captured.packets[0].time, np.zeros((len(_OPS), len(KINDS)))
    for one in captured.packets:
        kind = KINDS[one.topic.split("/")[3]]
        if one.client == captured.target:
            found[list(_OPS).index(one.op), list(KINDS).index(kind.name)] = one.time - last
        elif one.op == "publish" and kind.writer == "board" and kind.retained:
            last = one.time
    return found.ravel()


def _numbers(captured: Captured, own: list[Seen], said: list[int], sizes: list[int], waits: list[float]) -> FloatArray:
    """Return figures that a linear test can weigh."""
    began, names = captured.packets[0].time, {name: place for place, name in enumerate(_OPS)}
    counts = np.zeros((2, _BUCKETS))
    for one in captured.packets:
        counts[int(one.client == captured.target), crc32(f"{one.op} {one.topic}".encode()) % _BUCKETS] += 1
    order = [place for place, one in enumerate(captured.packets) if one.client == captured.target]
    columns = (
        [one.time - began for one in own],
        [one.time - began for one in own if one.op == "publish"],
        waits,
        [float(size) for size in sizes],
        [float(place) for place in order],
        [float(names[one.op]) for one in own],
        [float(content % 1009) for content in said],
    )
    padded = [np.pad(np.array(column[:_PACKETS]), (0, max(_PACKETS - len(column), 0))) for column in columns]
    return np.concatenate((*padded, counts.ravel(), _answered(captured), [len(captured.packets), len(own), sum(sizes)]))
