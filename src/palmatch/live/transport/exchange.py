"""A broker's inside: who is subscribed to what, what is retained, who may do what, and how much of it.

No I/O: the WebSocket hub, the in-memory broker and the board that shares a process with its hub are ports of it.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from time import monotonic
from typing import Literal

import msgspec

from palmatch.device import messages as m
from palmatch.errors import ProtocolError
from palmatch.live.keys import Signer
from palmatch.live.ops import Metrics
from palmatch.live.topics import LONGEST, Role, Topic, matches, patterns_of, readable

# The WebSocket subprotocol.
CBOR = "palmatch.cbor"
PATH = "/bus"
# What a client proves that it holds a key with.
HELLO = "hub hello"


class Op(IntEnum):
    """Operations: up to UNSUBSCRIBE from a client, the others from the hub."""

    HELLO = 0
    PUBLISH = 1
    PUBLISH_RETAINED = 2
    SUBSCRIBE = 3
    UNSUBSCRIBE = 4
    CHALLENGE = 5
    WELCOME = 6
    MESSAGE = 7
    RETAINED = 8
    SUBSCRIBED = 9
    NOT_SUBSCRIBED = 10
    REFUSED = 11


_FROM_CLIENT = (Op.HELLO, Op.PUBLISH, Op.PUBLISH_RETAINED, Op.SUBSCRIBE, Op.UNSUBSCRIBE)


@dataclass(frozen=True, slots=True)
class Hello(m.Message):
    """A client that is not a device says who it is, and proves it by signing the hub's challenge."""

    role: Role
    key: m.Key
    signature: m.Signature
    # Empty in version 1 of the protocol.
    name: str = ""
    # The certificates (packets) of the resources that this key serves.
    certificates: tuple[bytes, ...] = ()


def hello(signer: Signer, challenge: bytes, role: Role, certificates: tuple[bytes, ...] = ()) -> bytes:
    """Return the body of a hello."""
    signature = signer.sign(HELLO, challenge)
    return msgspec.json.encode(Hello(role=role, key=signer.public, signature=signature, certificates=certificates))


@lru_cache(maxsize=8)
def frame(op: Op, topic: str, payload: bytes) -> bytes:
    """Return a binary frame."""
    name = topic.encode()
    return bytes([op]) + len(name).to_bytes(2) + name + payload


def read_frame(data: bytes, allowed: tuple[Op, ...] = _FROM_CLIENT) -> tuple[Op, str, bytes]:
    """Return operation, topic and bytes; raise ProtocolError for anything else."""
    end = 3 + int.from_bytes(data[1:3])
    if len(data) < 3 or len(data) < end or data[0] not in allowed:
        raise ProtocolError("Expected an operation, a topic and a payload.")
    try:
        return Op(data[0]), data[3:end].decode(), data[end:]
    except UnicodeError:
        raise ProtocolError("Expected a topic in UTF-8.") from None


_LOG = logging.getLogger(__name__)

# A device needs about a dozen subscriptions and one message a slot; the board is not limited.
_MOST_SUBSCRIPTIONS = 256
_RATE, _BURST = 50.0, 200.0
# What a gateway may do more for each resource that it is certified for.
_PER_NAME = 8


class RateExceeded(ProtocolError):
    """More messages than a connection may send; it is to be closed."""


@dataclass(frozen=True, slots=True)
class Access:
    """What a connection may do: its role, and the names that it may use where a role is bound to its own."""

    role: Role = "device"
    names: tuple[str, ...] = ()
    # The same names, and the patterns that may be read, to be found at once: a gateway has thousands of them.
    _own: frozenset[str] = field(init=False, repr=False, compare=False)
    _readable: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_own", frozenset(self.names))
        object.__setattr__(self, "_readable", frozenset(readable(self.role, self.names)))

    def may_publish(self, topic: Topic) -> bool:
        """Tell whether this role publishes on this topic."""
        return topic.rule.writer == self.role and (not topic.rule.write_own or topic.name in self._own)

    def may_subscribe(self, pattern: str) -> bool:
        """Tell whether every topic that the pattern receives may be read: it, or a wider one, is allowed."""
        allowed = len(pattern) <= LONGEST and "#" not in pattern
        return allowed and not self._readable.isdisjoint(patterns_of(pattern))


# What any connection may do that has not shown a key.
DEVICE = Access()


@dataclass(frozen=True, slots=True)
class Seen:
    """What a wire-tapper at the broker sees: when a client, by its number, asked for what on which topic or pattern."""

    time: float
    client: int
    op: Literal["publish", "subscribe", "unsubscribe"]
    topic: str
    packet: bytes


class Exchange:
    """Ports, their subscriptions and the retained values; `observer` is told of all that ports ask for."""

    def __init__(
        self,
        metrics: Metrics | None = None,
        clock: Callable[[], float] = monotonic,
        observer: Callable[[Seen], None] | None = None,
    ) -> None:
        self.metrics = metrics or Metrics()
        self.retained: dict[str, bytes] = {}
        # The topics of retained packets by kind, so that a wildcard need not look at all of them.
        self._kinds: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self.clock, self.observer = clock, observer
        self._attached = 0
        self._ports: defaultdict[str, dict[Port, None]] = defaultdict(dict)

    def attach(self, access: Access, deliver: Callable[[str, bytes, bool], None]) -> Port:
        """Return a port; `deliver(topic, packet, retained)` is called for what it is subscribed to."""
        self.metrics.add("palmatch_connections", 1, role=access.role)
        self._attached += 1
        return Port(self, access, deliver, self._attached - 1)

    def route(self, topic: str, packet: bytes) -> None:
        """Hand a packet to every port that is subscribed to its topic, once."""
        ports: dict[Port, None] = {}
        for pattern in patterns_of(topic):
            ports |= self._ports.get(pattern, {})
        for port in ports:
            port.deliver(topic, packet, False)
        self.metrics.add("palmatch_delivered_total", len(ports))
        self.metrics.add("palmatch_delivered_bytes_total", len(ports) * len(packet))

    def retain(self, topic: str, packet: bytes) -> None:
        """Keep the packet of a topic for ports that come later; an empty one makes it forgotten."""
        if packet:
            self.retained[topic] = packet
            self._kinds[_kind_of(topic)][topic] = None
        elif self.retained.pop(topic, None) is not None:
            del self._kinds[_kind_of(topic)][topic]

    def subscribe(self, port: Port, pattern: str) -> None:
        """Subscribe a port and hand it what is retained."""
        self._ports[pattern][port] = None
        topics = self._kinds[_kind_of(pattern)] if "+" in pattern else self.retained
        for topic in [topic for topic in topics if matches(pattern, topic)] if "+" in pattern else [pattern]:
            if topic in topics:
                port.deliver(topic, self.retained[topic], True)

    def unsubscribe(self, port: Port, pattern: str) -> None:
        """Undo a subscription."""
        self._ports[pattern].pop(port, None)
        if not self._ports[pattern]:
            del self._ports[pattern]


class Port:
    """One connection's view of the exchange; raises ProtocolError for what it may not do."""

    __slots__ = ("_allowed", "_exchange", "_more", "_when", "access", "deliver", "number", "patterns")

    def __init__(
        self, exchange: Exchange, access: Access, deliver: Callable[[str, bytes, bool], None], number: int
    ) -> None:
        self._exchange = exchange
        self.number = number
        self.access = access
        self.deliver = deliver
        self.patterns: set[str] = set()
        self._more = _PER_NAME * len(access.names)
        self._allowed = _BURST + self._more
        self._when = exchange.clock()

    def publish(self, text: str, packet: bytes, retain: bool) -> None:
        """Publish, if role, topic, size and rate allow it."""
        self._seen("publish", text, packet)
        self._spend()
        topic = Topic.parse(text)
        rule = topic.rule
        if not self.access.may_publish(topic):
            raise self._refused("publish", f"A {self.access.role} may not publish on {rule.name}.")
        if retain and rule.retained and not packet:
            self._exchange.retain(text, b"")
            return
        if len(packet) > rule.limit or (rule.padded and len(packet) != rule.padded):
            raise self._refused("size", f"A packet of {len(packet)} bytes is not allowed on {rule.name}.")
        if retain and not rule.retained:
            raise self._refused("retain", f"Nothing is retained on {rule.name}.")
        self._exchange.metrics.add("palmatch_received_total", kind=rule.name)
        self._exchange.metrics.add("palmatch_received_bytes_total", len(packet))
        if retain:
            self._exchange.retain(text, packet)
        self._exchange.route(text, packet)

    def subscribe(self, pattern: str) -> None:
        """Subscribe, if every topic that this receives may be read."""
        self._seen("subscribe", pattern)
        self._spend()
        if not self.access.may_subscribe(pattern):
            raise self._refused("subscribe", f"A {self.access.role} may not read all that was asked for.")
        most = _MOST_SUBSCRIPTIONS + self._more
        if self.access.role != "board" and len(self.patterns) >= most and pattern not in self.patterns:
            raise self._refused("subscriptions", f"Expected at most {most} subscriptions.")
        self.patterns.add(pattern)
        self._exchange.subscribe(self, pattern)

    def unsubscribe(self, pattern: str) -> None:
        """End a subscription."""
        self._seen("unsubscribe", pattern)
        self._spend()
        self.patterns.discard(pattern)
        self._exchange.unsubscribe(self, pattern)

    def close(self) -> None:
        """Forget the port."""
        for pattern in self.patterns:
            self._exchange.unsubscribe(self, pattern)
        self.patterns.clear()
        self._exchange.metrics.add("palmatch_connections", -1, role=self.access.role)

    def _seen(self, op: Literal["publish", "subscribe", "unsubscribe"], topic: str, packet: bytes = b"") -> None:
        """Tell the observer, also of what is refused: it was on the wire."""
        if self._exchange.observer is not None:
            self._exchange.observer(Seen(self._exchange.clock(), self.number, op, topic, packet))

    def _spend(self) -> None:
        """Take one from the allowance, which grows by the rate; the board's is not limited."""
        if self.access.role == "board":
            return
        now = self._exchange.clock()
        rate, burst = _RATE + self._more, _BURST + self._more
        self._allowed = min(burst, self._allowed + (now - self._when) * rate) - 1.0
        self._when = now
        if self._allowed < 0:
            self._refused("rate", "")
            raise RateExceeded(f"Expected at most {rate:g} messages a second.")

    def _refused(self, reason: str, sentence: str) -> ProtocolError:
        self._exchange.metrics.add("palmatch_refused_total", reason=reason)
        return ProtocolError(sentence)


def _kind_of(text: str) -> str:
    """Return the kind in a topic or in an allowed pattern, which always names one."""
    return text.split("/", 4)[3]
