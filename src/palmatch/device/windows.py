"""When messages leave within a window (the joining time, or a slot): shares of it that are the same for all devices.

All of it is public. A message leaves at an offset within its share that is drawn without looking at what it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

# A window begins with a margin in which the device decides and writes: a message that had to wait for that would tell
# how long it took. What is sent last still arrives.
MARGIN, _LAST = 0.1, 0.7
# Seconds that a device takes in any case, however short its window is; shorter slots are refused.
LEAST_MARGIN = 0.05

Share = tuple[float, float]

ONCE: tuple[Share, ...] = ((MARGIN, _LAST),)
# Joins and reports are sent again, since a lost packet is not noticed, unless the board has said meanwhile that it has
# heard this device; the same one twice counts once.
COPIES: tuple[Share, ...] = ((MARGIN, 0.45), (0.55, 0.62), (0.63, _LAST))
# Seconds of a slot of bids or claims: for the network, and for each device. Of that two cores spend a third or less on
# all parties; a device that reads a bulletin when three tenths of a slot are over may be late with its answer.
_SLOT, _SLOT_OF_DEVICE = 1.5, 0.0006
# When the board says whom it has heard: between the copies.
ACKNOWLEDGED: tuple[float, ...] = (0.5, 0.625)


def margin_of(window: float) -> float:
    """Return how many seconds of a window a device has to decide in; nothing leaves within them."""
    return max(MARGIN * window, LEAST_MARGIN)


def sending_times(shares: Sequence[Share], offset: float, began: float, window: float, now: float) -> list[float]:
    """Return when a message leaves that was decided on by `now`: in each share of a window, at the offset drawn for it.

    A device that took so long that the first time is over is late by whole margins: no more than their number shows.
    """
    least = LEAST_MARGIN * (1 + offset)
    times = [began + max(window * (first + offset * (last - first)), least) for first, last in shares]
    margin = margin_of(window)
    late = margin * max(ceil((now - times[0]) / margin), 0)
    return [when + late for when in times]


def slot_for(devices: int) -> float:
    """Return how many seconds a slot of bids or claims should have for so many devices."""
    return _SLOT + _SLOT_OF_DEVICE * devices
