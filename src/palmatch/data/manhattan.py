"""Which places are on the island of Manhattan, by latitude and longitude in degrees (WGS 84).

One hand-drawn outline, one predicate. Nothing in here knows trips, files or metres.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Drawn by hand, clockwise from the Battery. The line runs along the middle of the narrow waters (Harlem River,
# the West Channel of the East River) and a little off the piers on the Hudson, because a taxi's receiver between
# tall buildings is often a hundred metres off: a pick-up "in the river" was made on its bank. Roosevelt, Randalls,
# Wards, Governors and Liberty Island and Marble Hill (across the Ship Canal) lie outside.
_OUTLINE: Final = (
    # Hudson, northwards
    (40.7000, -74.0170), (40.7045, -74.0195), (40.7185, -74.0180), (40.7295, -74.0140), (40.7425, -74.0115),
    (40.7575, -74.0070), (40.7660, -74.0015), (40.7720, -73.9965), (40.7865, -73.9865), (40.7965, -73.9785),
    (40.8190, -73.9630), (40.8270, -73.9585), (40.8360, -73.9510), (40.8515, -73.9480), (40.8690, -73.9350),
    (40.8790, -73.9275),
    # Ship Canal, eastwards, south of Marble Hill
    (40.8780, -73.9215), (40.8757, -73.9168), (40.8737, -73.9111), (40.8715, -73.9095),
    # Harlem River, southwards
    (40.8629, -73.9150), (40.8560, -73.9220), (40.8452, -73.9290), (40.8285, -73.9335), (40.8197, -73.9335),
    (40.8138, -73.9330), (40.8076, -73.9320), (40.8035, -73.9282), (40.8000, -73.9280),
    # East River, southwards, west of Wards Island and Roosevelt Island
    (40.7895, -73.9370), (40.7820, -73.9415), (40.7755, -73.9410), (40.7700, -73.9465), (40.7650, -73.9510),
    (40.7605, -73.9555), (40.7570, -73.9590), (40.7500, -73.9650), (40.7430, -73.9700), (40.7345, -73.9730),
    (40.7265, -73.9705), (40.7180, -73.9725), (40.7100, -73.9765), (40.7080, -73.9905), (40.7062, -73.9990),
    (40.7045, -74.0020), (40.6995, -74.0110),
)  # fmt: skip


def manhattan(latitude: ArrayLike, longitude: ArrayLike) -> NDArray[np.bool_]:
    """Say which places, given in degrees, are on the island of Manhattan; a place that is not a number is not.

    Examples
    --------
    >>> manhattan([40.7580, 40.6413], [-73.9855, -73.7781]).tolist()  # Times Square, Kennedy Airport
    [True, False]
    """
    return within(_OUTLINE, latitude, longitude)


def within(corners: Sequence[tuple[float, float]], latitude: ArrayLike, longitude: ArrayLike) -> NDArray[np.bool_]:
    """Say which places are inside a polygon: a line to the east crosses its boundary an odd number of times."""
    north, east = np.broadcast_arrays(np.asarray(latitude, dtype=np.float64), np.asarray(longitude, dtype=np.float64))
    odd = np.zeros(north.shape, dtype=np.bool_)
    for (north_a, east_a), (north_b, east_b) in zip(corners, (*corners[1:], corners[0]), strict=True):
        if north_a == north_b:
            continue  # An edge along the line is not crossed.
        reached = (north_a > north) != (north_b > north)
        # Where an edge is not reached, its crossing means nothing and may overflow; it is not looked at.
        with np.errstate(all="ignore"):
            odd ^= reached & (east < east_a + (north - north_a) * (east_b - east_a) / (north_b - north_a))
    return odd
