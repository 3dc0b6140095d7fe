"""How one agent's chances follow from utilities: the only place where the paper's distributions are written down.

These are plain functions of plain sequences, with no imports: a device runs them as they are, and
`regions.noise` compiles these very functions for the simulator, the accountant and the auditor. Chances are
integers over GRID, so that what is drawn is what is accounted, with nothing lost to floating point in between.

A rank set is given as `entries[start:stop]`, positions in `utilities`.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence

# All chances are integers over this: the largest power of two below which a double holds every integer.
GRID = 1 << 53


def fill_weights(
    utilities: Sequence[float], entries: Sequence[int], start: int, stop: int, weights: MutableSequence[int]
) -> None:
    """Write Eq. (weighted at random) into `weights[:stop - start]`: integers of at least 1 that sum to GRID.

    Each is the share of its utility, rounded down; what rounding leaves over goes to the largest one.
    """
    total = 0.0
    for place in range(start, stop):
        total += utilities[entries[place]]
    left = GRID
    largest, most = 0, 0
    for place in range(start, stop):
        weight = int(utilities[entries[place]] / total * GRID)
        if weight < 1:
            weight = 1
        weights[place - start] = weight
        left -= weight
        if weight > most:
            largest, most = place - start, weight
    weights[largest] += left


def pick(weights: Sequence[int], draw: int) -> int:
    """Return the place that a draw from [0, GRID) falls on."""
    place = 0
    below = weights[0]
    while draw >= below:
        place += 1
        below += weights[place]
    return place


def expected_utility(utilities: Sequence[float], entries: Sequence[int], start: int, stop: int) -> float:
    """Return what one gets on average from a rank set by Eq. (weighted at random): the sum in Eq. (loss)."""
    total = 0.0
    squares = 0.0
    for place in range(start, stop):
        total += utilities[entries[place]]
        squares += utilities[entries[place]] * utilities[entries[place]]
    return squares / total


def backoff_weight(utility: float, alternative: float, gamma: float) -> int:
    """Return the chance over GRID of backing off from something worth `utility`.

    `alternative` is the expected utility of the rank set that comes next. Eq. (loss) is what one would lose by looking
    there; Eq. (linear) is total here, so that a negative loss falls into its first case.
    """
    loss = utility - alternative
    if loss <= gamma:
        chance = 1.0 - gamma
    elif 1.0 - loss <= gamma:
        chance = gamma
    else:
        chance = 1.0 - loss
    return min(max(int(chance * GRID), 1), GRID - 1)


def draw_report(chances: Sequence[int], draw: int) -> int:
    """Return the report that a draw from [0, 2^53) falls on: the only function that turns the truth into a message.

    Parameters
    ----------
    chances:
        The row of the table for the agent's own cell: probabilities over 2^53.
    draw:
        A fresh whole number from [0, 2^53).

    Returns
    -------
    int
        The number of the report.

    Examples
    --------
    >>> from palmatch.device.distribution import GRID, draw_report
    >>> draw_report((3 * GRID // 4, GRID // 4), 0), draw_report((3 * GRID // 4, GRID // 4), GRID - 1)
    (0, 1)

    References
    ----------
    - [Warner (1965)][]: randomised response.
    - [Mironov (CCS 2012)][]: why the draw is an integer.
    """
    return pick(chances, draw)
