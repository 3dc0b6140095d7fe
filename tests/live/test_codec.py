import math

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from live.examples import HASH, MESSAGES, TAG, topic
from live.fuzz import peak_of
from palmatch.device import messages as m
from palmatch.device.messages import pack
from palmatch.errors import ProtocolError
from palmatch.live.codec import OtherVersion, body_of, decode, packet_of, read_body
from palmatch.live.topics import KINDS, Topic

SIGNATURE = bytes(range(64))
MUTATIONS = 10_000


@pytest.mark.parametrize("kind", MESSAGES)
def test_what_is_sent_is_what_is_read(kind):
    body = body_of(MESSAGES[kind])
    envelope = decode(str(topic(kind)), packet_of(topic(kind), body, SIGNATURE))
    assert (envelope.message, envelope.body, envelope.signature) == (MESSAGES[kind], body, SIGNATURE)


def packet(kind, body, **more):
    return packet_of(topic(kind), body, SIGNATURE, **more)


def test_another_protocol_is_refused_in_one_sentence_that_says_who_updates():
    for version, who in ((0, "its sender has to"), (1, "its sender has to"), *((new, "") for new in (3, 23, 24, 255))):
        with pytest.raises(OtherVersion, match=f"protocol version {version}, .* version 2: {who} ?update palmatch"):
            decode(topic("report"), packet("report", b"\xa0", version=version))


@pytest.mark.parametrize("offer", [math.nan, math.inf, -math.inf, -1.0, 1e300])
def test_an_offer_that_is_no_sensible_number_is_refused(offer):
    body = cbor2.dumps({"sequence": 1, "tag": TAG, "offer": offer}, canonical=True)
    with pytest.raises(ProtocolError):
        decode(topic("bid"), packet("bid", body))


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_packed_numbers_must_be_finite(number):
    good = cbor2.loads(body_of(MESSAGES["bulletin"]))
    with pytest.raises(ProtocolError, match="finite"):
        read_body(m.Bulletin, cbor2.dumps(good | {"prices": pack("d", [number, 0])}, canonical=True), "bulletin")
    with pytest.raises(ProtocolError, match="multiple of 8"):
        read_body(m.Bulletin, cbor2.dumps(good | {"holders": b"123"}, canonical=True), "bulletin")


def test_everything_a_device_sends_in_a_game_has_one_size():
    said = [
        m.Report(sequence=0, tag=TAG, channel=HASH, report=0),
        m.Report(sequence=2**53, tag=TAG, channel=HASH, report=65_535),
        m.Bid(sequence=1, tag=TAG, offer=0.1),
        m.Bid(sequence=1, tag=TAG, offer=1.0),
        m.Claim(sequence=1, tag=TAG),
        MESSAGES["handover"],
        MESSAGES["cancel"],
    ]
    sizes = set()
    for message in said:
        kind = next(name for name, rule in KINDS.items() if rule.message is type(message))
        sizes.add(len(packet(kind, body_of(message))))
    assert len(sizes) == 1


def test_padding_cannot_carry_anything():
    good = packet("report", body_of(MESSAGES["report"]))
    with pytest.raises(ProtocolError, match="zeros"):
        decode(topic("report"), good[:-1] + b"\1")


def test_other_sizes_are_refused():
    good = packet("report", body_of(MESSAGES["report"]))
    for bad in (good + b"\0", good[:-1], b"", good * 10_000):
        with pytest.raises(ProtocolError, match="exactly 512 bytes"):
            decode(topic("report"), bad)


def test_cbor_tags_are_refused():
    for tag in (*range(1200), 43000, 55799, 2**40):
        for content in (bytes(16), "a" * 16, 1, [1, 2]):
            with pytest.raises(ProtocolError):
                read_body(m.Fence, cbor2.dumps({"nonce": cbor2.CBORTag(tag, content)}), "fence")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"{" * 100_000,
        b"\x81" * 100_000,
        b"\xbb" + b"\x7f" * 8,
        b"\x5b" + b"\xff" * 8,
        b"\xbf\xff",
        body_of(MESSAGES["fence"]) + b"\0",
        cbor2.dumps({"nonce": bytes(16), "more": 1}, canonical=True),
        cbor2.dumps({"nonce": "x" * 16}, canonical=True),
        b"\xa1\x78\x05nonce\x50" + bytes(16),
        b"\xa2\x65nonce\x50" + bytes(16) + b"\x65nonce\x50" + bytes(16),
    ],
)
def test_malformed_bodies_are_refused(body):
    with pytest.raises(ProtocolError):
        read_body(m.Fence, body, "fence")


def test_mutated_packets_are_refused_with_the_protocols_own_error_in_bounded_memory(tmp_path):
    """Every decoder; `python tests/live/fuzz.py` tries ten times as many."""
    read, peak = peak_of(MUTATIONS, 0, tmp_path)
    # Some mutations leave a valid message (another number, another tag): the decoders are not refusing everything.
    assert 0 < sum(read.values()) < MUTATIONS // 2
    assert peak < 32 * 2**20


@given(st.text(min_size=1, max_size=64), st.text(min_size=1, max_size=64))
def test_any_name_makes_a_topic_of_its_own(game, name):
    text = str(Topic(game, "table", name)) if game.isprintable() and name.isprintable() else None
    if text is not None:
        assert Topic.parse(text) == Topic(game, "table", name)
        assert text.count("/") == 4
        assert not set("+#\0") & set(text)


@pytest.mark.parametrize(
    "text",
    ["", "pm/1/g", "pm/2/g/open", "pm/1//open", "pm/1/g/unknown", "pm/1/g/open/x", "pm/1/g/table", "pm/1/g/table/",
     "pm/1/g/table/%61", "pm/1/+/open", "pm/1/g/table/#", "pm/1/g/table/a/b", "x" * 5000],
)  # fmt: skip
def test_unknown_topics_are_refused(text):
    with pytest.raises(ProtocolError):
        Topic.parse(text)
