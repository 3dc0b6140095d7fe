"""Messages off a stream of WebSocket frames (RFC 6455): nearly all are one binary frame, which is read here at once.

Whatever else comes (control frames, text, parts of a message, what breaks the rules) is handed on as it came, in whole
frames and in its order, for a WebSocket library to deal with. Both ends of a connection read their frames so.
"""

from __future__ import annotations

from collections.abc import Iterator

# The first byte of a binary message in one frame, and the bit of the second one that says that it is masked.
_WHOLE, _MASK = 0x82, 0x80
# Where the length takes more bytes: its code, and how many.
_WIDTHS = {126: 2, 127: 8}
_SHORTEST = 2


class Frames:
    r"""Splits what arrives; `masked` says whether frames come from a client, `largest` what a message may have.

    Examples
    --------
    >>> frames = Frames(masked=False, largest=100)
    >>> list(frames.taken(b"\x82\x02hi\x82\x03th")), list(frames.taken(b"e\x89\x00"))
    ([(True, b'hi')], [(True, b'the'), (False, b'\x89\x00')])
    """

    __slots__ = ("_largest", "_masked", "_needed", "_rest")

    def __init__(self, *, masked: bool, largest: int) -> None:
        self._masked, self._largest = _MASK if masked else 0, largest
        self._rest = bytearray()
        self._needed = _SHORTEST

    def taken(self, data: bytes) -> Iterator[tuple[bool, bytes]]:
        """Give each frame that is complete: (True, message), or (False, the whole frame) for a library."""
        if self._rest:
            self._rest += data
            # A message that trickles in is not looked at, nor copied, before all of it is here.
            if len(self._rest) < self._needed:
                return
            data = bytes(self._rest)
        place, end = 0, len(data)
        try:
            while end - place >= _SHORTEST:
                mask, length = data[place + 1] & _MASK, data[place + 1] & 0x7F
                start = place + _SHORTEST
                if (width := _WIDTHS.get(length, 0)) and start + width <= end:
                    length = int.from_bytes(data[start : start + width])
                start += width + (4 if mask else 0)
                if start > end:
                    self._needed = start - place
                    break
                stop = start + length
                if length > self._largest:
                    # A library refuses it by its length, before the rest of it is here, and all that follows.
                    stop, self._largest = end, -1
                elif stop > end:
                    self._needed = stop - place
                    break
                if data[place] == _WHOLE and mask == self._masked and length <= self._largest:
                    message = data[start:stop]
                    yield True, _unmasked(message, data[start - 4 : start]) if mask else message
                else:
                    yield False, data[place:stop]
                place, self._needed = stop, _SHORTEST
        finally:
            self._rest = bytearray(data[place:])


def _unmasked(message: bytes, mask: bytes) -> bytes:
    size = len(message)
    key = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(message, "little") ^ int.from_bytes(key, "little")).to_bytes(size, "little")
