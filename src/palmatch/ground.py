"""A problem on which methods are prepared: the public numbers, and what several methods need, computed once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from palmatch.crowd import sets as crowd_sets
from palmatch.crowd import tables as crowd_tables
from palmatch.neighbourhood import Neighbourhood, Progress, neighbourhoods
from palmatch.policies.noise import BackoffNoise, PublicPlay, SelectionNoise, public_play
from palmatch.policies.published import Policy
from palmatch.privacy.sound import Accountant
from palmatch.problem import FloatArray, Matching, Problem
from palmatch.rounds.draws import Keys, keys_of
from palmatch.rounds.tables import Own, OwnTables, PublicTables, own_tables, public_tables, snapped_tables

Report = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """Public numbers of a matching.

    `truth_selection=None` takes the paper's: 0.2, or 0.1 for papers. `order` is the paper's λ and concerns `published`
    alone; `accountant` concerns the methods whose promise holds.
    """

    epsilon: float = 1.0
    delta: float = 1e-5
    order: float = 32.0
    truth_selection: float | None = None
    truth_backoff: float = 0.05
    gamma: float = 0.05
    noise: SelectionNoise = "representative"
    backoff_noise: BackoffNoise = "representative"
    accountant: Accountant = "auto"


@dataclass(slots=True)
class Ground:
    """A problem with what several methods need of it, computed once and when asked for."""

    problem: Problem
    report: Report | None = None
    _regions: tuple[Neighbourhood, ...] | None = field(default=None, init=False)
    _own: OwnTables | None = field(default=None, init=False)
    _keys: Keys | None = field(default=None, init=False)
    _sets: crowd_sets.Sets | None = field(default=None, init=False)

    @property
    def regions(self) -> tuple[Neighbourhood, ...]:
        """The public tables of every region."""
        if self._regions is None:
            progress = self.progress("regions")
            if self.is_crowd:
                self._regions = crowd_tables.neighbourhoods(self.problem, self.sets, progress=progress)
            else:
                self._regions = neighbourhoods(self.problem, progress=progress)
        return self._regions

    @property
    def is_crowd(self) -> bool:
        """Whether this is a city with bounded interest, for which everything is built over a grid: the same, faster."""
        return crowd_sets.is_crowd(self.problem)

    @property
    def sets(self) -> crowd_sets.Sets:
        """The rank sets of all squares of a crowd."""
        if self._sets is None:
            self._sets = crowd_sets.rank_sets(self.problem)
        return self._sets

    def plays(self, policy: Policy) -> list[PublicPlay]:
        """Return every region's noise under a policy."""
        return [
            public_play(region, selection=policy.selection_noise, backoff=policy.backoff_noise, gamma=policy.gamma)
            for region in self.regions
        ]

    def tables(self, policy: Policy) -> PublicTables:
        """Return the public tables under a policy."""
        if self.is_crowd and crowd_tables.has_plain_noise(policy):
            return crowd_tables.public_tables(self.problem, self.sets, policy)
        return public_tables(self.problem, self.regions, self.plays(policy))

    def acting(self, *, snapped: bool) -> Own:
        """Return what everybody acts on: its own utilities, or those of the possible type that is nearest."""
        if self.is_crowd:
            return crowd_tables.own_places(self.problem, self.sets, snapped=snapped)
        return snapped_tables(self.problem, self.regions) if snapped else self.own

    @property
    def own(self) -> OwnTables:
        """Everybody's own utilities."""
        if self._own is None:
            self._own = own_tables(self.problem, self.regions)
        return self._own

    @property
    def keys(self) -> Keys:
        """What everybody's draws are keyed by."""
        if self._keys is None:
            self._keys = keys_of(self.problem.agent_ids)
        return self._keys

    def progress(self, what: str) -> Progress | None:
        """Return a progress function for one part of the work."""
        report = self.report
        return None if report is None else lambda done, total: report(what, done, total)


@dataclass(frozen=True, slots=True)
class Method:
    """A way to match, ready to be played: `play(seed)` returns a `Matching`."""

    name: str
    play: Callable[[int], Matching]
    plays_rounds: bool
    random: bool


def budgets(problem: Problem, settings: Settings) -> FloatArray:
    """Return everybody's budget: their own, or the caller's."""
    return np.where(np.isnan(problem.epsilon), settings.epsilon, problem.epsilon)
