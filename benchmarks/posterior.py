"""What an observer may conclude: how likely each possible type of a region makes what an agent was seen to do.

Everything here follows from public tables, public charges and one agent's rows of a `Trace`, or its report; no real
agent's utilities are known. Chances are those of `palma.policy.mixed`, the function that the player draws by and
that the accountant charges.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from palmatch.matching import Outcome, Trace
from palmatch.palma.policy import Policy, mixture, to_fixed_point
from palmatch.problem import FloatArray, IntArray
from palmatch.regions.noise import PublicPlay, backoff_weights, selection_weights
from palmatch.regions.tables import RegionView

# Numbers in one table of chances at a time: 32 MB of them.
_MOST_CELLS = 4_000_000


@dataclass(frozen=True, slots=True)
class Charges:
    """Units for each action of a region: the first pick, a selection at each rank set, a back-off at each entry."""

    first: int
    selection: Sequence[int]
    backoff: Sequence[int]


@dataclass(frozen=True, slots=True)
class Actions:
    """What one agent chose, in order.

    Attributes
    ----------
    cells:
        Which choice it was: with E entries in all rank sets, e stands for selecting entry e, E + e for backing off
        from it, 2 E + e for staying.
    units:
        The charge of each choice.
    unread:
        The charge of the first choice that is in no rank set of its turn, after which nothing is read; None if all are.
    """

    cells: IntArray
    units: IntArray
    unread: int | None = None

    def __len__(self) -> int:
        return len(self.cells)

    def paid(self, budget: int) -> int:
        """Return how many of the choices, from the first on, a budget pays for; the others are noise.

        It is a prefix, because exhaustion is latched, and any observer can tell it, because charges are public.
        """
        return bisect_right(list(accumulate(self.units.tolist())), budget) if budget > 0 else 0

    def possible(self, budget: int) -> bool:
        """Whether an agent with this budget may have chosen so: it leaves its rank sets only with no budget left."""
        if self.unread is None or self.paid(budget) < len(self):
            return True
        return int(self.units.sum()) + self.unread > budget


class Reader:
    """Reads the choices of a region's agents off a trace."""

    def __init__(self, region: RegionView, charges: Charges) -> None:
        self._ranks = region.ranks
        self._entries = len(region.entries)
        self._first = charges.first
        self._selection = np.asarray(charges.selection, dtype=np.int64)
        self._backoff = np.asarray(charges.backoff, dtype=np.int64)
        # An entry is found by its rank and its resource, through one sorted list of both.
        self._stride = int(region.resources.max()) + 1
        rank = np.repeat(np.arange(region.ranks), np.diff(region.offsets))
        names = rank * self._stride + region.resources[region.entries]
        self._order = np.argsort(names)
        self._names = names[self._order]

    def read(self, trace: Trace, agent: int) -> Actions:
        """Return what an agent chose: its first pick, where it looked, whether it gave way.

        An agent with no budget left may pass over a rank set that is held as a whole. What it does from there on is
        not read: it is the same for all types.
        """
        rows = np.flatnonzero(trace.agent == agent)
        outcome = trace.outcome[rows]
        looked = outcome >= Outcome.FREE
        # A look comes after a step down the list; after the last rank set comes the first.
        rank = np.cumsum(looked) % self._ranks
        names = rank * self._stride + trace.resource[rows]
        place = np.minimum(np.searchsorted(self._names, names), len(self._names) - 1)
        known = int(np.argmin(np.append(self._names[place] == names, False)))
        unread = int(self._selection[rank[known]]) if known < len(rows) else None
        rows, outcome, looked, rank = rows[:known], outcome[:known], looked[:known], rank[:known]
        entry = self._order[place[:known]]
        collided = np.flatnonzero((outcome == Outcome.STAYS) | (outcome == Outcome.BACKS_OFF))
        # What is attempted in the first step was picked before it.
        picked = np.flatnonzero(looked | (np.arange(len(rows)) == 0))
        picks = self._selection[rank[picked]]
        picks[:1] = self._first
        stays = 1 + (outcome[collided] == Outcome.STAYS)
        order = np.argsort(np.concatenate((2 * picked, 2 * collided + 1)))
        return Actions(
            cells=np.concatenate((entry[picked], entry[collided] + stays * self._entries))[order],
            units=np.concatenate((picks, self._backoff[entry[collided]]))[order],
            unread=unread,
        )


def log_chances(region: RegionView, play: PublicPlay, policy: Policy, utilities: FloatArray) -> FloatArray:
    """Return, for each row of utilities, the log of the chance of each cell while the budget lasts (rows x 3 E)."""
    rows = np.ascontiguousarray(utilities)
    selection = selection_weights(rows, region.entries, region.offsets)
    backoff = backoff_weights(rows, region.entries, region.offsets, policy.gamma)
    return _cells(
        mixture(policy.truth_selection, selection, play.selection), mixture(policy.truth_backoff, backoff, play.backoff)
    )


def noise_log_chances(play: PublicPlay, policy: Policy) -> FloatArray:
    """Return the log of the chance of each cell once the budget is spent: the region's noise, whoever acts.

    With `Policy.spent_backoff` every agent gives way with that chance. What is then passed over, because it is held, is
    not known here: chances of looks are those of the draw, and off by a factor that is the same for all types.
    """
    chance = to_fixed_point(policy.spent_backoff)
    backoff = np.full_like(play.backoff, chance) if chance else play.backoff
    return _cells(mixture(0.0, play.selection, play.selection), mixture(0.0, backoff, backoff))


def log_likelihoods(actions: Actions, own: FloatArray, noise: FloatArray, budgets: IntArray) -> FloatArray:
    """Return the log of the chance of these choices for each type.

    Parameters
    ----------
    own, noise:
        What `log_chances` and `noise_log_chances` return; `own` has a row for each type.
    budgets:
        What each type may spend. Under the paper's accounting it depends on the type, and that tells something too.
    """
    quiet = noise[actions.cells]
    # Chances of the first n choices under each type, and of all after the n-th under the noise.
    before = np.concatenate((np.zeros((len(own), 1)), np.cumsum(own[:, actions.cells], axis=1)), axis=1)
    after = np.concatenate((np.cumsum(quiet[::-1])[::-1], [0.0]))
    different, place = np.unique(budgets, return_inverse=True)
    paid = np.array([actions.paid(int(budget)) for budget in different])[place]
    found: FloatArray = before[np.arange(len(own)), paid] + after[paid]
    return found


def region_log_likelihoods(
    actions: Actions, region: RegionView, play: PublicPlay, policy: Policy, budgets: IntArray
) -> FloatArray:
    """Return `log_likelihoods` of all possible types of a region, some at a time."""
    if policy.spent_backoff > 0 and len(np.unique(budgets)) > 1:
        # What is passed over is left out of the chances; with one budget for all types nothing hangs on it.
        raise ValueError("Expected one budget for all types where what is held is passed over after it.")
    noise = noise_log_chances(play, policy)
    some = max(1, _MOST_CELLS // (3 * len(region.entries)))
    parts = [slice(start, start + some) for start in range(0, len(region.types), some)]
    return np.concatenate(
        [
            log_likelihoods(actions, log_chances(region, play, policy, region.utilities[part]), noise, budgets[part])
            for part in parts
        ]
    )


def posterior(prior: FloatArray, log_likelihood: FloatArray) -> FloatArray:
    """Return what one believes after seeing something, by Bayes' rule."""
    weights = prior * np.exp(log_likelihood - log_likelihood.max())
    believed: FloatArray = weights / weights.sum()
    return believed


def _cells(selection: FloatArray, backoff: FloatArray) -> FloatArray:
    return np.concatenate((np.log(selection), np.log(backoff), np.log1p(-backoff)), axis=-1)
