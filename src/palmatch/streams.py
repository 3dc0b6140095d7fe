"""Random draws as a function of (stream, step, purpose), so that they do not depend on order, threads or machines.

In a simulation an agent's stream is a hash of seed and id, and the same seed gives the same matching. Without a seed
every agent has two streams, each of 64 fresh bits of its own from the operating system. The hash is the finaliser of
SplitMix64 (Steele, Lea, Flood 2014), a bijection: the first draw of a stream is uniform and independent of all others.
A live device does not use this: it draws each number from the operating system.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from math import isqrt

import numba
import numpy as np
from numpy.typing import NDArray

from palmatch.threads import parallel_chunks

# What a draw is for; two draws of one agent in one step never share a purpose.
SELECTION_COIN, SELECTION, BACKOFF_COIN, BACKOFF, RADIUS, ANGLE, REPORT, MADE_UP = 0, 1, 2, 3, 4, 5, 6, 7
PURPOSES = 8

_MASK = (1 << 64) - 1
_GAMMA, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB

# BLAKE2b with a digest of 8 bytes (RFC 7693), compiled, for very many short names: the same numbers as
# `hashlib.blake2b(name, digest_size=8)`, which takes longer to be called than to hash.
# The longest name, in bytes, that is one block.
BLOCK = 128

# The first 64 bits of the fractional parts of the square roots of the first eight primes.
_HASH_IV = np.array([isqrt(prime << 128) & _MASK for prime in (2, 3, 5, 7, 11, 13, 17, 19)], dtype=np.uint64)
# Ten permutations of the message's words; the last two rounds take the first two again.
_HASH_ORDER = np.array(
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
_HASH_WORDS = np.array(
    [[n, 4 + (n + k) % 4, 8 + (n + 2 * k) % 4, 12 + (n + 3 * k) % 4] for k in (0, 1) for n in range(4)], dtype=np.int64
)
# Digest of 8 bytes, no key, fan-out and depth 1.
_HASH_START = np.uint64(0x6A09E667F3BCC908 ^ 0x01010008)


Keys = NDArray[np.uint64]


def mix(value: int) -> int:
    """Return the SplitMix64 finaliser of a 64-bit integer."""
    value = ((value ^ (value >> 30)) * _FIRST) & _MASK
    value = ((value ^ (value >> 27)) * _SECOND) & _MASK
    return value ^ (value >> 31)


def stream(seed: int, key: int) -> int:
    """Return the 64-bit name of an agent's stream of draws."""
    return mix(key ^ mix((seed + _GAMMA) & _MASK))


def draw(stream_name: int, step: int, purpose: int) -> int:
    """Return a draw from [0, 2**53)."""
    counter = ((step * PURPOSES + purpose + 1) * _GAMMA) & _MASK
    return mix(stream_name ^ mix(counter)) >> 11


def keys_of(ids: Sequence[str]) -> Keys:
    """Return a 64-bit key for each public id, so that draws do not depend on the order of the rows."""
    # From so many ids on a compiled hash is sooner found than called.
    if len(ids) >= 10_000:
        text = "".join(ids).encode()
        sizes = np.fromiter(map(len, ids), dtype=np.int64, count=len(ids))
        # As many bytes as letters, where every letter is one byte.
        if len(text) == sizes.sum() and sizes.max() <= BLOCK:
            return hashes(text, sizes)
    digests = b"".join(blake2b(name.encode(), digest_size=8).digest() for name in ids)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def streams(seed: int, keys: Keys) -> Keys:
    """Return the streams of many agents: `stream` for arrays."""
    return _mix_array(keys ^ np.uint64(mix((seed + _GAMMA) & _MASK)))


@dataclass(frozen=True, slots=True)
class Randomness:
    """The draws of one game.

    Attributes
    ----------
    private:
        Each agent's own stream: known to that agent alone, unless the game is a simulation.
    second:
        Another private stream of each agent. One stream has 64 bits: two of its draws, of 53 bits each, are not
        independent, and where both are seen through one report they tell which stream, and so which truth, it was.
    public:
        Each agent's stream for what any observer may see and compute again, such as which of two equal bids wins.
    seed:
        What the public streams are a hash of.
    simulated:
        Whether a seed was given, of which the private streams are then a function, or these draws serve several games.
    """

    private: Keys
    second: Keys
    public: Keys
    seed: int
    simulated: bool

    def after_reports(self) -> Randomness:
        """Return the draws for what follows the reports: any observer sees it, so nothing private is drawn from."""
        return replace(self, private=self.public, second=self.public)

    def of_resources(self, ids: Sequence[str]) -> Keys:
        """Return a public stream for each resource; a resource and an agent with one id do not share it."""
        return streams(self.seed, ~keys_of(ids))


def randomness(keys: Keys, seed: int | None, *, published: int | None = None) -> Randomness:
    """Return the draws of a game: simulated from a seed, or fresh from the operating system.

    `published` is the seed of the public streams of a game whose private ones are fresh; fresh as well unless given.
    """
    if seed is not None:
        names = streams(seed, keys)
        return Randomness(names, names, names, seed, simulated=True)
    private, second = np.frombuffer(os.urandom(16 * len(keys)), dtype="<u8").astype(np.uint64).reshape(2, -1)
    published = secrets.randbits(63) if published is None else published
    return Randomness(private, second, streams(published, keys), published, simulated=False)


def draws(names: Keys, step: int, purpose: int) -> NDArray[np.int64]:
    """Return one draw from [0, 2**53) for each stream: `draw` for arrays."""
    counter = np.uint64(mix(((step * PURPOSES + purpose + 1) * _GAMMA) & _MASK))
    return (_mix_array(names ^ counter) >> np.uint64(11)).astype(np.int64)


def _mix_array(values: Keys) -> Keys:
    values = (values ^ (values >> np.uint64(30))) * np.uint64(_FIRST)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(_SECOND)
    return values ^ (values >> np.uint64(31))


@numba.njit(cache=True, nogil=True)
def compiled_mix(value):  # type: ignore[no-untyped-def]  # compiled
    """Return `mix` of a uint64."""
    return mixed_last(mixed_before_last(value))


@numba.njit(cache=True, nogil=True, inline="always")
def mixed_before_last(value):  # type: ignore[no-untyped-def]  # compiled
    """Return `mix` of a uint64 but for its last step."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(_FIRST)
    return (value ^ (value >> np.uint64(27))) * np.uint64(_SECOND)


@numba.njit(cache=True, nogil=True, inline="always")
def mixed_last(value):  # type: ignore[no-untyped-def]  # compiled
    """Return what the last step of `mix` makes of a uint64: its 31 highest bits stay."""
    return value ^ (value >> np.uint64(31))


@numba.njit(cache=True, nogil=True, inline="always")
def counter(step, purpose):  # type: ignore[no-untyped-def]  # compiled
    """Return what the names of all streams are mixed with for one draw."""
    return compiled_mix(np.uint64(step * PURPOSES + purpose + 1) * np.uint64(_GAMMA))


@numba.njit(cache=True, nogil=True)
def compiled_draw(name, step, purpose):  # type: ignore[no-untyped-def]  # compiled
    """Return `draw` as an int64."""
    return np.int64(compiled_mix(name ^ counter(step, purpose)) >> np.uint64(11))


def hashes(text: bytes, sizes: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the hash of each name, given one after the other; every one of them has at most `BLOCK` bytes."""
    letters, ends = np.frombuffer(text + b"\0", dtype=np.uint8), np.cumsum(sizes)
    found = np.empty(len(sizes), dtype=np.uint64)
    parallel_chunks(lambda *some: _fill_hashes(some, letters, ends, found), len(sizes))
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
            state[place], state[place + 8] = _HASH_IV[place], _HASH_IV[place]
        state[0] = _HASH_START
        state[12] ^= np.uint64(ends[number] - start)
        state[14] = ~state[14]
        for turn in range(12):
            order = _HASH_ORDER[turn % 10]
            for step in range(8):
                a, b, c, d = _HASH_WORDS[step]
                state[a] += state[b] + words[order[2 * step]]
                state[d] = _turn(state[d] ^ state[a], 32)
                state[c] += state[d]
                state[b] = _turn(state[b] ^ state[c], 24)
                state[a] += state[b] + words[order[2 * step + 1]]
                state[d] = _turn(state[d] ^ state[a], 16)
                state[c] += state[d]
                state[b] = _turn(state[b] ^ state[c], 63)
        found[number] = _HASH_START ^ state[0] ^ state[8]
        start = ends[number]
