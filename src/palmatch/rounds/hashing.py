"""BLAKE2b with a digest of 8 bytes (RFC 7693), compiled, for very many short names at once.

The same numbers as `hashlib.blake2b(name, digest_size=8)`, which takes longer to be called than to hash.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from palmatch.threads import spread

# Names that one thread hashes at a time.
_AT_A_TIME = 1 << 14

# The longest name, in bytes, that is one block.
BLOCK = 128

_IV = np.array(
    [
        0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1,
        0x510E527FADE682D1, 0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179,
    ],
    dtype=np.uint64,
)  # fmt: skip
# Ten permutations of the message's words; the last two rounds take the first two again.
_SIGMA = np.array(
    [
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
        [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
        [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
        [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
        [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
        [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
        [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
        [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
        [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
    ],
    dtype=np.int64,
)
# Which words of the state each of the eight mixtures of a round takes.
_PLACES = np.array(
    [
        [0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15],
        [0, 5, 10, 15], [1, 6, 11, 12], [2, 7, 8, 13], [3, 4, 9, 14],
    ],
    dtype=np.int64,
)  # fmt: skip
# Digest of 8 bytes, no key, fan-out and depth 1.
_FIRST = np.uint64(0x6A09E667F3BCC908 ^ 0x01010008)


def hashes(text: bytes, sizes: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the hash of each name, given one after the other; every one of them has at most `BLOCK` bytes."""
    letters, ends = np.frombuffer(text + b"\0", dtype=np.uint8), np.cumsum(sizes)
    found = np.empty(len(sizes), dtype=np.uint64)
    spread(lambda *some: _fill_hashes(some, letters, ends, found), len(sizes), at_a_time=_AT_A_TIME)
    return found


@numba.njit(cache=True, nogil=True)
def _turn(value, bits):  # type: ignore[no-untyped-def]  # compiled
    return (value >> np.uint64(bits)) | (value << np.uint64(64 - bits))


@numba.njit(cache=True, nogil=True)
def _fill_hashes(some, text, ends, found):  # type: ignore[no-untyped-def]  # compiled
    state, words = np.empty(16, dtype=np.uint64), np.empty(16, dtype=np.uint64)
    start = ends[some[0] - 1] if some[0] > 0 else 0
    for number in range(some[0], some[1]):
        words[:] = np.uint64(0)
        for place in range(ends[number] - start):
            words[place >> 3] |= np.uint64(text[start + place]) << np.uint64(8 * (place & 7))
        for place in range(8):
            state[place], state[place + 8] = _IV[place], _IV[place]
        state[0] = _FIRST
        state[12] ^= np.uint64(ends[number] - start)
        state[14] = ~state[14]
        for turn in range(12):
            order = _SIGMA[turn % 10]
            for step in range(8):
                a, b, c, d = _PLACES[step]
                state[a] += state[b] + words[order[2 * step]]
                state[d] = _turn(state[d] ^ state[a], 32)
                state[c] += state[d]
                state[b] = _turn(state[b] ^ state[c], 24)
                state[a] += state[b] + words[order[2 * step + 1]]
                state[d] = _turn(state[d] ^ state[a], 16)
                state[c] += state[d]
                state[b] = _turn(state[b] ^ state[c], 63)
        found[number] = _FIRST ^ state[0] ^ state[8]
        start = ends[number]
