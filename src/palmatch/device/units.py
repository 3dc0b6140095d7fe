"""Agents that want several resources: what is one resource, and what an agent bids when it wants several.

A resource with several seats is offered seat by seat, as `v1#1`, `v1#2` and so on. An agent that wants several
resources never gets two seats of one. Plain functions of plain numbers; `device.mjs` has the same operations in the
same order.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence


def base_of(name: str) -> str:
    """Return the resource that a seat is part of; what has one seat is its own resource.

    Examples
    --------
    >>> from palmatch.device.units import base_of
    >>> base_of("v1#2"), base_of("v1")
    ('v1', 'v1')
    """
    base, _, number = name.rpartition("#")
    return base if base and number.isascii() and number.isdigit() else name


def best_gain(gains: Sequence[float], bases: Sequence[str], demand: int) -> float:
    """Return what the best `demand` different resources gain together; going without gains nothing."""
    best: dict[str, float] = {}
    for base, gain in zip(bases, gains, strict=True):
        if gain > best.get(base, 0.0):
            best[base] = gain
    total = 0.0
    for gain in sorted(best.values(), reverse=True)[:demand]:
        total = total + gain
    return total


def best_bids(
    values: Sequence[float],
    bases: Sequence[str],
    prices: Sequence[float],
    held: Collection[str],
    wanted: int,
    step: float,
) -> list[tuple[int, float]]:
    """Return (place, offer) for each of the best resources of an agent that wants so many more, best first.

    For each it offers as much as it could pay before what it would take in its place became worth more, plus a public
    step; with one wanted resource that is `bid.best_bid`.

    Parameters
    ----------
    values, bases, prices:
        What each seat is worth, the resource that it is part of, and its price.
    held:
        Resources of which the agent holds a seat: it bids for no other of theirs.

    References
    ----------
    [Bertsekas, Castañon (1989)][].
    """
    gains = [value - price for value, price in zip(values, prices, strict=True)]
    places = [place for place, base in enumerate(bases) if gains[place] >= 0.0 and base not in held]
    places.sort(key=lambda place: -gains[place])
    chosen: list[int] = []
    # What would be taken in place of any of them, and in place of the seat of one resource: another of its seats.
    others, own = 0.0, dict[str, float]()
    taken: set[str] = set()
    for place in places:
        if bases[place] in taken:
            own.setdefault(bases[place], gains[place])
        elif len(chosen) < wanted:
            chosen.append(place)
            taken.add(bases[place])
        else:
            others = max(others, gains[place])
    return [
        (place, prices[place] + (gains[place] - max(others, own.get(bases[place], 0.0))) + step) for place in chosen
    ]
