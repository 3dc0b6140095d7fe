from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode

from palmatch.live.transport.stream import Frames

FRAMES = st.one_of(
    st.builds(
        Frame,
        st.sampled_from([Opcode.BINARY, Opcode.TEXT, Opcode.CONT]),
        st.one_of(st.binary(max_size=100), st.integers(0, 70_000).map(bytes)),
        fin=st.booleans(),
    ),
    st.builds(Frame, st.sampled_from([Opcode.PING, Opcode.PONG]), st.binary(max_size=100)),
)


def in_pieces(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in pairwise(places)]


def taken(frames: Frames, pieces: Sequence[bytes]) -> list[tuple[bool, bytes]]:
    return [found for piece in pieces for found in frames.taken(piece)]


@given(st.lists(FRAMES, max_size=6), st.lists(st.integers(0, 10**6), max_size=8), st.booleans())
def test_whole_binary_messages_are_read_and_the_rest_is_handed_on_in_whole_frames(
    sent: list[Frame], cuts: list[int], masked: bool
) -> None:
    written = [frame.serialize(mask=masked) for frame in sent]
    expected = [
        (True, bytes(frame.data)) if frame.opcode is Opcode.BINARY and frame.fin else (False, bytes_of)
        for frame, bytes_of in zip(sent, written, strict=True)
    ]
    pieces = in_pieces(b"".join(written), cuts)
    assert taken(Frames(masked=masked, largest=100_000), pieces) == expected


def test_what_a_client_sends_without_a_mask_is_for_the_library_to_refuse() -> None:
    plain = Frame(Opcode.BINARY, b"claim").serialize(mask=False)
    assert list(Frames(masked=True, largest=100).taken(plain)) == [(False, plain)]


def test_a_message_that_is_too_large_is_handed_on_by_its_head_and_refused() -> None:
    start = Frame(Opcode.BINARY, bytes(101)).serialize(mask=True)[:20]
    frames = Frames(masked=True, largest=100)
    assert taken(frames, [start[:3], start[3:]]) == [(False, start)]
    # What follows is the rest of it, whatever it looks like.
    later = Frame(Opcode.BINARY, b"claim").serialize(mask=True)
    assert taken(frames, [later]) == [(False, later)]


@given(st.integers(0, 3))
def test_a_length_that_takes_more_bytes_than_it_needs_does_not_stall_the_connection(size: int) -> None:
    spread = b"\x82\x7e" + size.to_bytes(2) + bytes(size)
    assert taken(Frames(masked=False, largest=100), in_pieces(spread, [1, 2, 3])) == [(True, bytes(size))]
