"""The bytes on the wire, held against a file: what parties of another release understand must not change unnoticed.

`PYTHONPATH=tests python tests/live/test_frozen_wire.py` writes the file anew, for another version of the protocol.
"""

import asyncio
import itertools
import json
import secrets
from collections import Counter
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from live.buses import KEYS, MemoryBus
from live.examples import MESSAGES, topic
from live.listening import clock
from live.small_game import GAME, BidRules, ReportRules, Resources, announce, opening, player
from palmatch.device.state import BidMachine, ReportMachine
from palmatch.live.board import Board
from palmatch.live.journal import Journal
from palmatch.live.keys import Signer, tag_of
from palmatch.live.topics import KINDS
from palmatch.live.transport.exchange import Seen

FILE = Path(__file__).with_name("vectors") / "packets.json"
FROZEN = json.loads(FILE.read_text())
SIGNER = Signer(sha256(b"frozen").digest())
# What is sealed is sealed with fresh randomness: its size alone is compared.
SEALED = "handover"


def digest(data):
    return sha256(data).hexdigest()


def frozen_messages():
    found = {}
    for kind, message in MESSAGES.items():
        packet = SIGNER.packet(topic(kind), message)
        found[kind] = [str(topic(kind)), len(packet), digest(packet)]
    return found


def frozen_game(folder, protocol, patch):
    """Every different packet of a game without chance: (count, sizes, hash of all topics and packets) of each kind."""
    numbers = rsa.RSAPrivateNumbers(
        **{name: int(value, 16) for name, value in FROZEN["issuer"]["private"].items()},
        public_numbers=rsa.RSAPublicNumbers(65537, int(FROZEN["issuer"]["n"], 16)),
    )
    issuer, count = numbers.private_key(), itertools.count()
    patch.setattr(secrets, "token_bytes", lambda size=32: bytes(range(size)))
    patch.setattr(secrets, "randbits", lambda bits: 1 << (bits - 1))
    patch.setattr(secrets, "randbelow", lambda below: below // 3)
    patch.setattr(Signer, "fresh", classmethod(lambda cls: cls(sha256(b"%d" % next(count)).digest())))
    seen: list[Seen] = []

    async def main(join):
        resources = Resources()
        await resources.serve(join)
        await announce(join, issuer)
        journal = Journal(folder / "board.db")
        board = Board(await join("board"), KEYS["board"], journal, clock=clock, threads=False)
        rules, kind = (ReportRules(), ReportMachine) if protocol == "report" else (BidRules(), BidMachine)
        devices = [await player(await join(), folder, number, issuer, kind) for number in range(3)]
        times = opening(issuer, rules, protocol, 1 if protocol == "report" else 40)
        await asyncio.gather(board.play(GAME, times), *(device.play() for device, _ in devices))
        for _, ledger in devices:
            ledger.close()
        journal.close()

    MemoryBus(observer=seen.append).run(main)
    packets = {(one.topic, one.packet) for one in seen if one.op == "publish"}
    kinds: dict[str, list[tuple[str, bytes]]] = {kind: [] for kind in KINDS}
    for name, packet in packets:
        kinds[name.split("/")[3]].append((name, packet))
    return {
        kind: [
            {str(size): number for size, number in sorted(Counter(len(packet) for _, packet in found).items())},
            ""
            if kind == SEALED
            else digest(b"".join(sorted(name.encode() + b"\n" + packet for name, packet in found))),
        ]
        for kind, found in kinds.items()
        if found
    }


def test_every_message_has_the_bytes_that_it_had():
    assert frozen_messages() == FROZEN["messages"]
    assert tag_of(GAME, SIGNER.public).hex() == FROZEN["tag"]


@pytest.mark.parametrize("protocol", ["report", "bids"])
def test_a_game_without_chance_has_the_packets_that_it_had(memory_folder, protocol, monkeypatch):
    assert frozen_game(memory_folder, protocol, monkeypatch) == FROZEN["games"][protocol]


if __name__ == "__main__":
    FROZEN |= {"messages": frozen_messages(), "tag": tag_of(GAME, SIGNER.public).hex(), "games": {}}
    for played in ("report", "bids"):
        with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            FROZEN["games"][played] = frozen_game(Path(folder), played, patch)
    FILE.write_text(json.dumps(FROZEN, indent=1) + "\n")
