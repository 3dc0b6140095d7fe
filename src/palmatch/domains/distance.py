"""What a place is worth to an agent at another one, compiled: exp(-d / alpha) of the Manhattan distance.

The exponential is written out in additions and multiplications, so that a utility has the same bits on every machine,
in a whole table, for one pair, and inside a compiled loop. Coordinates are all that is known here.
"""

from __future__ import annotations

import numba
import numpy as np

from palmatch.problem import FloatArray, IntArray

# Utilities are positive by contract; this is what is left of them beyond 690 alpha.
SMALLEST_UTILITY = 1e-300

# Beyond this many alpha utilities may be as small as they get, and equal.
FLAT = 650.0

_LOG2_E = 1.4426950408889634
# ln 2 in two parts, the first with so few digits that whole multiples of it are exact.
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
# Adding and subtracting it rounds to a whole number.
_ROUNDER = 6755399441055744.0
_LOWEST = -700.0


def _exponential(exponent: float) -> float:
    """Return e^x for x <= 0, to within two units in the last place; 2^k times a polynomial of what is left."""
    exponent = max(exponent, _LOWEST)
    shifted = exponent * _LOG2_E + _ROUNDER
    power = shifted - _ROUNDER
    rest = (exponent - power * _LN2_HIGH) - power * _LN2_LOW
    series = rest * (1.0 / 6227020800.0) + 1.0 / 479001600.0
    series = series * rest + 1.0 / 39916800.0
    series = series * rest + 1.0 / 3628800.0
    series = series * rest + 1.0 / 362880.0
    series = series * rest + 1.0 / 40320.0
    series = series * rest + 1.0 / 5040.0
    series = series * rest + 1.0 / 720.0
    series = series * rest + 1.0 / 120.0
    series = series * rest + 1.0 / 24.0
    series = series * rest + 1.0 / 6.0
    series = series * rest + 0.5
    # The whole number is in the last bits of what was rounded: no conversion, so that processors do several at a time.
    scale: float = np.int64((np.float64(shifted).view(np.int64) + 1023) << 52).view(np.float64)
    return (1.0 + (rest + rest * rest * series)) * scale


exponential = numba.njit(cache=True, nogil=True)(_exponential)


def _fill_exponentials(exponents: FloatArray, values: FloatArray) -> None:
    for place in range(len(exponents)):
        values[place] = exponential(exponents[place])


_filled_exponentials = numba.njit(cache=True, nogil=True)(_fill_exponentials)


def exponentials(exponents: FloatArray) -> FloatArray:
    """Return e^x for each of some x <= 0, of any shape."""
    values = np.empty(exponents.size)
    _filled_exponentials(np.ravel(exponents), values)
    return values.reshape(exponents.shape)


def _worth(distance: float, slope: float) -> float:
    """Return the utility at a distance; `slope` is -1 / alpha."""
    return max(exponential(distance * slope), SMALLEST_UTILITY)


worth = numba.njit(cache=True, nogil=True)(_worth)


def _fill_table(
    east: FloatArray, north: FloatArray, places: FloatArray, columns: IntArray, slope: float, table: FloatArray
) -> None:
    # Side by side, so that processors compute several at a time.
    there_east, there_north = np.empty(len(columns)), np.empty(len(columns))
    for column in range(len(columns)):
        there_east[column], there_north[column] = places[columns[column], 0], places[columns[column], 1]
    for row in range(len(east)):
        here_east, here_north, out = east[row], north[row], table[row]
        for column in range(len(columns)):
            distance = abs(here_east - there_east[column]) + abs(here_north - there_north[column])
            out[column] = worth(distance, slope)


_filled_table = numba.njit(cache=True, nogil=True)(_fill_table)


def _fill_pairs(
    east: FloatArray, north: FloatArray, places: FloatArray, columns: IntArray, slope: float, values: FloatArray
) -> None:
    for row in range(len(east)):
        place = columns[row]
        values[row] = worth(abs(east[row] - places[place, 0]) + abs(north[row] - places[place, 1]), slope)


_filled_pairs = numba.njit(cache=True, nogil=True)(_fill_pairs)


def utility_table(types: FloatArray, places: FloatArray, columns: IntArray, alpha: float) -> FloatArray:
    """Return the utility of every one of `places[columns]` to every type, whose first two numbers are a place too."""
    table = np.empty((len(types), len(columns)))
    _filled_table(*_coordinates(types), places, columns, -1.0 / alpha, table)
    return table


def utility_of_pairs(types: FloatArray, places: FloatArray, columns: IntArray, alpha: float) -> FloatArray:
    """Return the utility to each type of one place, `places[columns[i]]` to type i."""
    values = np.empty(len(types))
    _filled_pairs(*_coordinates(types), places, columns, -1.0 / alpha, values)
    return values


def _coordinates(types: FloatArray) -> tuple[FloatArray, FloatArray]:
    return np.ascontiguousarray(types[:, 0], dtype=np.float64), np.ascontiguousarray(types[:, 1], dtype=np.float64)
