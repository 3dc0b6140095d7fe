"""When messages leave within a window (the joining time, or a slot): shares of it that are the same for all devices.

All of it is public. A message leaves at an offset within its share that is drawn without looking at what it says.
"""

from __future__ import annotations

# A window begins with a margin in which the device decides and writes: a message that had to wait for that would tell
# how long it took. What is sent last still arrives.
MARGIN, _LAST = 0.1, 0.7
# Seconds that a device takes in any case, however short a slot the board announces.
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


def slot_for(devices: int) -> float:
    """Return how many seconds a slot of bids or claims should have for so many devices."""
    return _SLOT + _SLOT_OF_DEVICE * devices
