"""What tests of whole games share: a clock, and everything that a board says on the bus."""

import asyncio

from live.buses import KEYS
from palmatch.device import messages as m
from palmatch.device.messages import split
from palmatch.live.codec import Envelope, decode, sequence_of
from palmatch.live.keys import verify
from palmatch.live.records import holders
from palmatch.live.topics import KINDS
from palmatch.live.transport import Transport

GAME = "morning"
BOARD = KEYS["board"]


def clock() -> float:
    return 1_000_000 + asyncio.get_running_loop().time()


class Listener:
    """Everything that the board says on the bus, and where it contradicts itself."""

    def __init__(self) -> None:
        self.said: dict[tuple[str, int], bytes] = {}
        self.conflicts: set[str] = set()
        self.last: dict[str, Envelope] = {}
        self.transcripts: dict[str, Envelope] = {}

    async def listen(self, transport: Transport) -> None:
        for kind in ("open", "resources", "roster", "tables", "bulletin", "result", "transcript"):
            await transport.subscribe(f"pm/1/{GAME}/{kind}" + ("/+" if KINDS[kind].parameter else ""), self._hear)

    def _hear(self, topic: str, packet: bytes) -> None:
        envelope = verify(decode(topic, packet), BOARD.public)
        self.last[envelope.topic.kind] = envelope
        if isinstance(envelope.message, m.Transcript):
            self.transcripts[envelope.topic.name or ""] = envelope
        if self.said.setdefault((topic, sequence_of(envelope)), envelope.hash) != envelope.hash:
            self.conflicts.add(topic)

    @property
    def told(self) -> set[bytes]:
        """The tags in all transcripts."""
        return {tag for found in self.transcripts.values() for tag in split(found.message.tags, 8)}

    @property
    def pairs(self) -> dict[bytes, str]:
        """The whole matching, from the transcripts of all regions, which must not contradict each other."""
        found: dict[bytes, str] = {}
        for envelope in self.transcripts.values():
            assert isinstance(envelope.message, m.Transcript)
            part = {tag: name for name, tag in holders(envelope.message).items()}
            assert all(found.get(tag, name) == name for tag, name in part.items())
            found |= part
        return found
