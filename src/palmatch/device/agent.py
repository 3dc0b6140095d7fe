"""One device: decide what to do in this step, observe what came of it, remember what it cost.

Written to be read, in plain Python without arrays; it is the oracle of the compiled kernel, and it runs on a device
as it is. It knows its region's public tables and its own utilities, and sees one bit of feedback per step, and which
resources are held.
"""

from __future__ import annotations

import secrets
from bisect import bisect_right
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from palmatch.device.distribution import GRID, backoff_weight, expected_utility, fill_weights, pick

# Draws from [0, GRID) for (step, purpose).
Draw = Callable[[int, int], int]

# What a draw is for: `streams` has them all.
_SELECTION_COIN, _SELECTION, _BACKOFF_COIN, _BACKOFF, REPORT = 0, 1, 2, 3, 6


def system_draw(step: int = 0, purpose: int = 0) -> int:  # noqa: ARG001 - a live draw is a function of nothing
    """Return a draw from [0, 2^53) of the operating system.

    Parameters
    ----------
    step, purpose:
        What a simulated draw would be a function of.

    Returns
    -------
    int
        A fresh whole number, which cannot be repeated.

    Examples
    --------
    >>> from palmatch.device.agent import system_draw
    >>> 0 <= system_draw() < 2**53
    True

    References
    ----------
    - [Garfinkel, Leclerc (WPES 2020)][]: which randomness differential privacy needs.
    - Page "For device developers", [What a device must do][], step 4.
    """
    return secrets.randbelow(GRID)


@dataclass(frozen=True, slots=True)
class RegionTables:
    """What is public about one region, charges in units included; see `regions.noise.PublicTables` for each."""

    resources: Sequence[int]
    offsets: Sequence[int]
    entries: Sequence[int]
    selection_below: Sequence[int]
    backoff: Sequence[int]
    first_units: int
    selection_units: Sequence[int]
    backoff_units: Sequence[int]

    @property
    def ranks(self) -> int:
        """K."""
        return len(self.offsets) - 1


class Rules(NamedTuple):
    """The public numbers that every agent plays by; chances are integers over GRID."""

    truth_selection: int
    truth_backoff: int
    gamma: float
    spent_backoff: int = 0


@dataclass(frozen=True, slots=True)
class Attempt:
    """Try to acquire this resource now."""

    resource: int


@dataclass(frozen=True, slots=True)
class Look:
    """See whether this resource is free."""

    resource: int


@dataclass(frozen=True, slots=True)
class AgentState:
    """All that changes in an agent: enough to go on after a restart without drawing anything again."""

    spent: int
    actions: int
    exhausted: bool
    rank: int
    held: int | None
    entry: int
    attempting: bool


class Agent:
    """An agent of PALMA (Alg. 1): it has a strategy, a rank, and units spent of a budget.

    Call `decide(step)` for what to do, then one of `won` and `collided` after an attempt, `saw` after a look. With a
    `state` it goes on from there.
    """

    def __init__(
        self,
        region: RegionTables,
        own: Sequence[float],
        budget: int,
        *,
        rules: Rules,
        draw: Draw,
        state: AgentState | None = None,
    ) -> None:
        self.region = region
        self.own = own
        self.budget = budget
        self.rules = rules
        self.draw = draw
        if state is not None:
            self.state = state
            return
        self.spent = 0
        self.actions = 0
        # Once an agent plays noise it never plays truth again: whether it still has budget must not be told from
        # what it does next.
        self.exhausted = budget <= 0
        self.rank = 0
        self.held: int | None = None
        # Alg. 1, line 1: the first strategy is drawn from P_S at s = 1.
        self.entry: int = self._select(0, region.first_units)
        self.attempting = True

    @property
    def state(self) -> AgentState:
        """What has changed since the agent was made."""
        return AgentState(self.spent, self.actions, self.exhausted, self.rank, self.held, self.entry, self.attempting)

    @state.setter
    def state(self, state: AgentState) -> None:
        self.spent, self.actions, self.exhausted = state.spent, state.actions, state.exhausted
        self.rank, self.held, self.entry, self.attempting = state.rank, state.held, state.entry, state.attempting

    def decide(self, step: int, held: Container[int] = ()) -> Attempt | Look:
        """Return this step's action; `held` is what is seen to be held, once the step's attempts are made."""
        if not self.attempting:
            # Alg. 1, lines 16-20: s comes first, so that the first look is at R_2; after R_K comes R_1.
            self.rank = self.rank + 1 if self.rank + 1 < self.region.ranks else 0
            self.entry = self._select(step, self.region.selection_units[self.rank], held)
        resource = self._resource(self.entry)
        return Attempt(resource) if self.attempting else Look(resource)

    def won(self) -> None:
        """Take note that no other agent attempted it: the resource is held for good."""
        self.held = self._resource(self.entry)

    def collided(self, step: int) -> bool:
        """Take note of a collision; return whether the agent backs off (Alg. 1, lines 7-12)."""
        truthful = self._may_act_on_the_truth(self.region.backoff_units[self.entry])
        if truthful and self.draw(step, _BACKOFF_COIN) < self.rules.truth_backoff:
            following = self.rank + 1 if self.rank + 1 < self.region.ranks else 0
            start, stop = self.region.offsets[following], self.region.offsets[following + 1]
            alternative = expected_utility(self.own, self.region.entries, start, stop)
            chance = backoff_weight(self.own[self.region.entries[self.entry]], alternative, self.rules.gamma)
        elif self.exhausted and self.rules.spent_backoff > 0:
            chance = self.rules.spent_backoff
        else:
            chance = self.region.backoff[self.entry]
        self.attempting = not self.draw(step, _BACKOFF) < chance
        return not self.attempting

    def saw(self, *, free: bool) -> None:
        """Take note of what a look showed: a free resource is attempted in the next step."""
        self.attempting = free

    def _resource(self, entry: int) -> int:
        return self.region.resources[self.region.entries[entry]]

    def _select(self, step: int, units: int, held: Container[int] = ()) -> int:
        """Draw an entry of the current rank set by Eq. (selection probability)."""
        truthful = self._may_act_on_the_truth(units) and self.draw(step, _SELECTION_COIN) < self.rules.truth_selection
        value = self.draw(step, _SELECTION)
        if truthful:
            start, stop = self.region.offsets[self.rank], self.region.offsets[self.rank + 1]
            weights = [0] * (stop - start)
            fill_weights(self.own, self.region.entries, start, stop, weights)
            return start + pick(weights, value)
        # Only without budget: a look that is charged has the chances that its charge was computed from.
        if self.exhausted and self.rules.spent_backoff > 0:
            return self._next_unheld(value, held)
        return self._noise(value, self.rank)

    def _next_unheld(self, value: int, held: Container[int]) -> int:
        """Return the entry that a draw falls on, or the first one after it, in a circle, that no agent holds.

        From a rank set that is held as a whole the agent goes on to the next one, with the same draw.
        """
        for rank in chain(range(self.rank, self.region.ranks), range(self.rank)):
            start, stop = self.region.offsets[rank], self.region.offsets[rank + 1]
            drawn = self._noise(value, rank)
            for entry in chain(range(drawn, stop), range(start, drawn)):
                if self._resource(entry) not in held:
                    self.rank = rank
                    return entry
        return self._noise(value, self.rank)

    def _noise(self, value: int, rank: int) -> int:
        """Return the entry of a rank set that a draw falls on by the region's noise."""
        start, stop = self.region.offsets[rank], self.region.offsets[rank + 1]
        return bisect_right(self.region.selection_below, value, start, stop)

    def _may_act_on_the_truth(self, units: int) -> bool:
        """Charge an action, if the budget has room for it; if not, never ask again."""
        if not self.exhausted and self.spent + units > self.budget:
            self.exhausted = True
        if self.exhausted:
            return False
        self.spent += units
        self.actions += units > 0
        return True
