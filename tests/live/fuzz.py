"""Mutated input for every decoder of the live runtime: run `python tests/live/fuzz.py --count 100000`.

A decoder may raise what the protocol raises (ProtocolError, a device's Refused, InputError for files) and nothing else.
What is read is read to the end: packets become records, and tables are checked as a device checks them.
"""

import argparse
import asyncio
import sys
import tempfile
import tracemalloc
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from live.examples import KEY, MESSAGES, PARTITION, topic
from palmatch.device import messages as m
from palmatch.device.checks import check_listed, check_rounds_table, check_table
from palmatch.device.records import ReportTable, RoundsTable
from palmatch.errors import InputError, ProtocolError, Refused
from palmatch.live import tokens
from palmatch.live.codec import body_of, decode, packet_of, read_body
from palmatch.live.keys import Opener, Signer, open_handover, seal_position
from palmatch.live.listing import ListTree
from palmatch.live.records import bulletin_record, holders, open_record, result_record, roster_record, table_record
from palmatch.live.transport.exchange import Op, frame, hello, read_frame
from palmatch.live.transport.hub import Hub
from palmatch.live.trust import Trust, load_gateway, load_trust, new_gateway, save_trust

SIGNATURE = bytes(range(64))
OPERATOR = Signer(bytes(range(32)))
TRUST = Trust(version=1, until=2**49, operator=OPERATOR.public, board=KEY, issuer=KEY, partition=PARTITION)


def mutated(data: bytes, random: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(random.randint(1, 4)):
        position = random.randrange(len(changed) + 1)
        match random.randrange(4):
            case 0 if changed:
                changed[position % len(changed)] = random.choice((0, 0x18, 0x5B, 0x7F, 0x9B, 0xBB, 0xC2, 0xFB, 0xFF))
            case 1 if changed:
                changed[position % len(changed)] ^= 1 << random.randrange(8)
            case 2:
                changed[position : position + random.randint(0, 9)] = random.randbytes(random.randint(0, 9))
            case _:
                del changed[position : position + random.randint(1, 20)]
    return bytes(changed)


@dataclass(frozen=True, slots=True)
class Decoder:
    """Something that reads what others wrote, and valid inputs for it."""

    name: str
    valid: tuple[bytes, ...]
    read: Callable[[bytes], object]


def packet(kind: str, body: bytes) -> bytes:
    return packet_of(topic(kind), body, SIGNATURE)


def bodies(kind: str) -> tuple[bytes, ...]:
    return (body_of(MESSAGES[kind]),)


def said(kind: str) -> tuple[bytes, ...]:
    return tuple(packet(kind, body) for body in bodies(kind))


def read_packet(kind: str, data: bytes) -> None:
    """Read a packet and all that is made of it."""
    envelope = decode(topic(kind), data)
    opened, roster = (decode(topic(name), said(name)[0]) for name in ("open", "roster"))
    match envelope.message:
        case m.Table():
            table = table_record(envelope)
            with suppress(Refused):
                check_listed(table.resources, table.listed, open_record(opened).resources)
            if isinstance(table, ReportTable):
                check_table(table, epsilon=table.epsilon, spots=len(table.cell_of))
            elif isinstance(table, RoundsTable):
                check_rounds_table(table, epsilon=table.epsilon, spots=len(table.utilities))
        case m.ResourceList():
            assert len(ListTree(envelope.message).root) == m.HASH
        case m.Bulletin():
            bulletin_record(envelope)
        case m.Transcript():
            holders(envelope.message)
            result_record(opened, roster, decode(topic("result"), said("result")[0]), envelope)
        case m.Roster():
            roster_record(opened, envelope, decode(topic("tables"), said("tables")[0]))
        case m.Tables():
            roster_record(opened, roster, envelope)


def decoders(folder: Path) -> list[Decoder]:
    """Return every decoder; files are written to a folder."""
    found = [
        Decoder(f"packet {kind}", said(kind), lambda data, kind=kind: read_packet(kind, data)) for kind in MESSAGES
    ]
    found += [
        Decoder(f"body {kind}", bodies(kind), lambda data, kind=kind: read_packet(kind, packet(kind, data)))
        for kind in MESSAGES
    ]
    frames = tuple(frame(op, str(topic("report")), said("report")[0]) for op in (Op.PUBLISH, Op.SUBSCRIBE))
    request = body_of(m.TokenRequest(game="g", member=KEY, blinded=bytes(256)))
    opener, hub = Opener(bytes(range(32))), Hub(TRUST)
    sealed = seal_position(opener.public, topic("handover"), b"12345678", 40.0, -73.0)
    trust, gateway, file = folder / "trust.json", folder / "gateway.json", folder / "file"
    save_trust(trust, OPERATOR, TRUST)
    gateway.write_bytes(msgspec.json.encode(new_gateway(OPERATOR, ("v1",), 1)))
    file.touch(0o600)

    def of_file(read: Callable[[Path], object]) -> Callable[[bytes], object]:
        return lambda data: file.write_bytes(data) and read(file)

    certificate = OPERATOR.packet(topic("resource"), MESSAGES["resource"], context="certificate")
    greeting = hello(OPERATOR, b"challenge", "resource", certificates=(certificate,))
    return [
        *found,
        Decoder("frame", frames, read_frame),
        Decoder("token request", (request,), lambda data: read_body(m.TokenRequest, data, "token request")),
        Decoder("hello", (greeting,), lambda data: asyncio.run(hub.admit(data, b"challenge"))),
        Decoder("issuer key", (tokens.public_der(tokens.new_key()),), tokens.read_public),
        Decoder("sealed", (sealed,), lambda data: open_handover(opener, topic("handover"), b"12345678", data)),
        Decoder("trust file", (trust.read_bytes(),), of_file(load_trust)),
        Decoder("gateway file", (gateway.read_bytes(),), of_file(load_gateway)),
    ]


def run(count: int, seed: int, folder: Path) -> Counter[str]:
    """Give each decoder its share of mutated inputs; return how many of each were still read."""
    random, read, known = Random(seed), Counter[str](), decoders(folder)
    for number in range(count):
        decoder = known[number % len(known)]
        try:
            decoder.read(mutated(random.choice(decoder.valid), random))
            read[decoder.name] += 1
        except (ProtocolError, Refused, InputError):
            pass
    return read


def peak_of(count: int, seed: int, folder: Path) -> tuple[Counter[str], int]:
    """Return the same, and the most memory that was in use at once, in bytes."""
    run(500, seed, folder)
    tracemalloc.start()
    read = run(count, seed + 1, folder)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return read, peak


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        found, most = peak_of(chosen.count, chosen.seed, Path(work))
    sys.stdout.write(f"{chosen.count:,} inputs, {sum(found.values()):,} still read, {most / 2**20:.1f} MiB at most\n")
