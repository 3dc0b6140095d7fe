"""How rivals take turns: when one gives way after a collision, and when one may enter at all.

Plain functions of plain numbers with integers over GRID as answers, as in `device.distribution`: a device runs them
as they are, and `rounds.turns` does the same for many values at once. Values are those of a list that an agent goes
down: its own utilities, its region's averages, or what a report implies. Nothing here knows which.
"""

from __future__ import annotations

from palmatch.device.distribution import GRID

# Losing a contest under a falling threshold: a fair coin halves the rivals at every step.
COIN = GRID // 2


def constant_chance(chance: float) -> int:
    """Return a back-off chance over GRID that is the same whatever is at stake."""
    return min(max(int(chance * GRID), 1), GRID - 1)


def opening_step(value: float, largest: float, smallest: float, steps: int) -> int:
    """Return the step (from 1) at which a threshold that falls evenly reaches a value.

    It is at the largest possible value at step 1 and at the smallest at step `steps`; public, as both of them are.
    """
    if largest <= smallest or value >= largest:
        return 1
    share = (largest - max(value, smallest)) / (largest - smallest)
    exact = share * (steps - 1)
    whole = int(exact)
    return 1 + whole + (1 if exact > whole else 0)
