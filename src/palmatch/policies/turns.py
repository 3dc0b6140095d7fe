"""How rivals take turns: when one gives way after a collision, and when one may enter at all.

Plain functions of plain numbers with integers over GRID as answers, as in `device.distribution`: a device runs them
as they are, and `rounds.turns` compiles these very functions. Values are those of a list that an agent goes down: its
own utilities, its region's averages, or what a report implies. Nothing here knows which.
"""

from __future__ import annotations

from palmatch.device.distribution import GRID

# Losing a contest under a falling threshold: a fair coin halves the rivals at every step.
COIN = GRID // 2


def constant_chance(chance: float) -> int:
    """Return a back-off chance over GRID that is the same whatever is at stake."""
    return min(max(int(chance * GRID), 1), GRID - 1)


def gap_chance(loss: float, scale: float, gamma: float) -> int:
    """Return the back-off chance over GRID of who would lose `loss`, on the scale of the gaps of its list.

    Eq. (linear) compares the loss with 1, the largest utility, so that small gaps all end at 1 - γ. On the scale of the
    gaps themselves chances spread over the whole of [γ, 1 - γ]. A list without gaps has nothing to tell: one half.
    """
    chance = 0.5 if scale <= 0.0 else 1.0 - loss / scale
    return min(max(int(min(max(chance, gamma), 1.0 - gamma) * GRID), 1), GRID - 1)


def decayed_chance(chance: int, step: int, every: int, floor: int) -> int:
    """Return what is left at a step (from 1) of a chance that halves every so many steps, but not below a floor.

    With `every` = 0 it never decays.
    """
    if every == 0:
        return chance
    halvings = min((step - 1) // every, 53)
    return max(chance >> halvings, min(chance, floor))


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
