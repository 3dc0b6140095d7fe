"""Numbers in bulk as byte strings: little-endian, exact, and read by `Float64Array` in a browser as they are.

A table holds many thousands of numbers; as single items they would cost a device more to decode than to use.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Iterable
from typing import Literal

Code = Literal["d", "Q", "q", "I", "i"]

# array's item sizes are the machine's; these are what the format states.
SIZES: dict[Code, int] = {"d": 8, "Q": 8, "q": 8, "I": 4, "i": 4}


def pack(code: Code, numbers: Iterable[float]) -> bytes:
    """Return numbers as bytes: 'd' float64, 'Q' uint64, 'q' int64, 'I' uint32, 'i' int32."""
    return _native(array(code, numbers)).tobytes()


def unpack(code: Code, packed: bytes) -> array[float]:
    """Return the numbers; raise ValueError for a broken length and for NaN or infinite numbers."""
    if len(packed) % SIZES[code]:
        raise ValueError(f"expected a multiple of {SIZES[code]} bytes, found {len(packed)}")
    numbers: array[float] = array(code)
    numbers.frombytes(packed)
    _native(numbers)
    if code == "d" and not all(map(math.isfinite, numbers)):
        raise ValueError("expected finite numbers")
    return numbers


def split(packed: bytes, size: int) -> list[bytes]:
    """Return the items of `size` bytes, for example tags."""
    if len(packed) % size:
        raise ValueError(f"expected a multiple of {size} bytes, found {len(packed)}")
    return [packed[start : start + size] for start in range(0, len(packed), size)]


def _native(numbers: array[float]) -> array[float]:
    """Swap bytes where the machine is big-endian."""
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
