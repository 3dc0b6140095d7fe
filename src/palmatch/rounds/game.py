"""A game of rounds from start to end: tables, rules and an allowance in, who holds what and what it cost out.

`simulate` plays the compiled game; `device.agent.Agent` is its oracle, with which it agrees in every bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from palmatch.device.agent import RegionTables, Rules
from palmatch.errors import DidNotConverge
from palmatch.matching import Trace
from palmatch.plain import compiled_later
from palmatch.policies.published import Policy, on_grid
from palmatch.privacy.accountants import Allowance
from palmatch.problem import IntArray
from palmatch.rounds import kernel
from palmatch.rounds.draws import Keys
from palmatch.rounds.tables import Own, PublicTables, stable_order
from palmatch.threads import spread, taken, usual_threads

# How many steps are played between two looks at the clock and at Ctrl-C.
_STEPS_AT_ONCE = 256

MOST_STEPS = 10_000_000

# Below so many active agents threads would wait for each other longer than they work.
FEW = 20_000

# A piece of work below this is done before another thread has begun.
_LEAST_PIECE = 256

# First picks of so few agents are made in Python, for so many seconds of processor time, before those of crowds are
# compiled.
_FEW_PICKS, _BEFORE_COMPILING = 500, 2.0

_few_first_picks = compiled_later(kernel.first_picks_alone, kernel.first_picks, seconds=_BEFORE_COMPILING)


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What the rounds ended in: for each agent its resource (-1: none), units spent, and charged actions.

    `steps` were played by whoever was still active; `actions` is how much all agents did in them, charged or not.
    """

    resource_of: IntArray
    spent: IntArray
    charged: IntArray
    steps: int
    trace: Trace | None
    actions: int


def rules_of(policy: Policy) -> Rules:
    """Return the public numbers of a policy."""
    return Rules(
        on_grid(policy.truth_selection), on_grid(policy.truth_backoff), policy.gamma, on_grid(policy.spent_backoff)
    )


def simulate(
    public: PublicTables,
    private: Own,
    rules: Rules,
    allowance: Allowance,
    *,
    names: Keys,
    trace: bool = False,
    most_steps: int = MOST_STEPS,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Outcomes:
    """Play until every agent holds something or has nothing left to attempt.

    `threads` changes how long it takes, and nothing else. `progress` is told (agents done, agents in all) from time to
    time.
    """
    game = Game(public, private, rules, allowance, names=names, sort=not trace, threads=threads)
    parts = []
    while len(game.active):
        if game.step > most_steps:
            raise DidNotConverge(
                f"{len(game.active)} of {game.agents} agents were still playing after {most_steps:,} steps."
            )
        if trace:
            at_once = min(_STEPS_AT_ONCE, max(1, 4_000_000 // len(game.active)))
            buffers = trace_buffers(len(game.active) * at_once)
            rows = game.play(min(at_once, most_steps + 1 - game.step), buffers)
            parts.append(tuple(buffer[:rows] for buffer in buffers))
        else:
            game.play(min(_STEPS_AT_ONCE, most_steps + 1 - game.step))
        if progress is not None:
            progress(game.agents - len(game.active), game.agents)
    seen = as_trace(parts) if trace else None
    if seen is not None:
        seen = replace(seen, resource=public.rows[seen.resource])
    return game.outcomes(seen)


class Game:
    """A compiled game under way: what every agent is about, and what is held.

    Agents play sorted by region, whose tables then stay at hand; nothing depends on it.
    """

    def __init__(
        self,
        public: PublicTables,
        private: Own,
        rules: Rules,
        allowance: Allowance,
        *,
        names: Keys,
        sort: bool = True,
        threads: int | None = None,
    ) -> None:
        self.agents, self.step, self.actions, self.rows = len(names), 1, 0, public.rows
        self.threads = usual_threads() if threads is None else threads
        ordered = not sort or bool((np.diff(public.region_of_agent) >= 0).all())
        self.order = None if ordered else stable_order(public.region_of_agent)
        region, budget = public.region_of_agent, allowance.budget
        if self.order is not None:
            region, names, budget = (self._of(column, self.order) for column in (region, names, budget))
        self.state = fresh_state(self.agents)
        self.spent, self.charged = np.zeros(self.agents, dtype=np.int64), np.zeros(self.agents, dtype=np.int64)
        self.words = np.zeros(len(public.rows), dtype=np.int64)
        self.cursor = public.resource_start[:-1].copy()
        # Which rank sets are known to be held as a whole.
        self.full = np.zeros(public.layout.ranks, dtype=np.bool_)
        self.active = np.arange(self.agents, dtype=np.int32)
        self.public = (region, *public.arrays[1:])
        self.rules = astuple(rules)
        self.charges = (allowance.first, allowance.selection, allowance.backoff)
        self.private = private.arrays(self.order, threads=self.threads)
        self.names, self.budget, self.largest_set = names, budget, public.largest_set
        first_picks = kernel.first_picks if self.agents > _FEW_PICKS else _few_first_picks
        self._spread(
            lambda *some: first_picks(
                some, self.names, self.rules, self.charges, self.public, self.private, self.budget, self.state,
                self.largest_set,
            ),
            self.agents,
        )  # fmt: skip

    def play(self, steps: int, trace: tuple[np.ndarray, ...] | None = None) -> int:
        """Play some steps; return how many actions there were."""
        before, until = self.actions, self.step + steps
        while self.step < until and len(self.active):
            some = until
            if trace is None:
                self._close_ranks()
                some = min(until, self.step + max(1, FEW // len(self.active)))
            if trace is None and len(self.active) >= FEW and self.threads > 1:
                self._step_on_threads()
            else:
                self._steps_on_one_thread(some, trace or trace_buffers(0))
        return self.actions - before

    def _steps_on_one_thread(self, until: int, trace: tuple[np.ndarray, ...]) -> None:
        self.step, count, actions = kernel.play(
            self.names, self.rules, self.charges, self.public, self.private, self.budget, self.state,
            (self.words, self.full, self.cursor), self.active, (self.step, until), self.largest_set, trace,
        )  # fmt: skip
        self.active = self.active[:count]
        self.actions += actions

    def _close_ranks(self) -> None:
        """Once half of those who are in memory have left, move the others together: what is read lies side by side."""
        if len(self.active) > len(self.names) // 2 or len(self.names) <= FEW:
            return
        self._note_charges()
        stay = self.active
        # What no other party knows of moves within its own memory; fresh memory is slow.
        columns = self.state
        self.state = tuple(
            spread(lambda at, _: kernel.close_up(stay, columns[at]), len(columns), at_a_time=1, threads=self.threads)
        )
        self.names, self.budget = self._of(self.names, stay), self._of(self.budget, stay)
        self.public = (self._of(self.public[0], stay), *self.public[1:])
        stored, start, utility, east, north, *places = self.private
        if stored:
            own = (self._of(start, stay), utility, east, north)
        else:
            own = (start, utility, self._of(east, stay), self._of(north, stay))
        self.private = (stored, *own, *places)  # type: ignore[assignment]
        self.active = np.arange(len(stay), dtype=np.int32)

    def _note_charges(self) -> None:
        _, _, _, spent, actions, _, who, _ = self.state
        self.spent[who], self.charged[who] = spent, actions

    def _step_on_threads(self) -> None:
        """Play one step in pieces: all agents claim, contest and act; those that are done leave."""
        active, public, state, words, step = self.active, self.public, self.state, self.words, self.step
        none = trace_buffers(0)
        self._spread(lambda *some: kernel.claim(active, some, state, words, step), len(active))
        self._spread(lambda *some: kernel.contest(active, some, state, words, step), len(active))
        self._spread(
            lambda *some: kernel.act(
                active, some, self.names, self.rules, self.charges, public, self.private, self.budget, state,
                (words, self.full), step, self.largest_set, none,
            ),
            len(active),
        )  # fmt: skip
        self.actions += len(active)
        kept = self._spread(
            lambda *some: active[some[0] :][: kernel.keep(active, some, public, state, words, self.cursor)], len(active)
        )
        self.active = np.concatenate(kept)
        self.step += 1

    def _spread(self, work: Callable[[int, int], Any], total: int) -> Sequence[Any]:
        return spread(work, total, at_a_time=max(-(-total // (4 * self.threads)), _LEAST_PIECE), threads=self.threads)

    def _of(self, column: NDArray[Any], agents: NDArray[Any]) -> NDArray[Any]:
        return taken(column, agents, threads=self.threads)

    def outcomes(self, trace: Trace | None = None) -> Outcomes:
        """Return what the game ended in, with agents and resources as in the problem."""
        held = np.flatnonzero(self.words >= kernel.HELD)
        resource_of = np.full(self.agents, -1, dtype=np.int64)
        resource_of[self.words[held] - kernel.HELD] = self.rows[held]
        self._note_charges()
        columns = (resource_of, self.spent, self.charged)
        if self.order is not None:
            columns = tuple(_unsorted(column, self.order) for column in columns)  # type: ignore[assignment]
        return Outcomes(*columns, self.step - 1, trace, self.actions)


def _unsorted(column: IntArray, order: IntArray) -> IntArray:
    result = np.empty_like(column)
    result[order] = column
    return result


def as_trace(parts: list[tuple[np.ndarray, ...]]) -> Trace:
    """Return the rows of all steps as one trace."""
    step, agent, resource, outcome = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Trace(step, agent, resource, outcome, np.zeros(len(step)))


def region_tables(public: PublicTables, allowance: Allowance, region: int) -> RegionTables:
    """Return one region's tables as plain lists, for a device."""
    first, last = int(public.rank_start[region]), int(public.rank_start[region + 1])
    start, stop = int(public.entry_start[first]), int(public.entry_start[last])
    return RegionTables(
        resources=public.rows[
            public.resources[public.resource_start[region] : public.resource_start[region + 1]]
        ].tolist(),
        offsets=(public.entry_start[first : last + 1] - start).tolist(),
        entries=public.entries[start:stop].tolist(),
        selection_below=public.selection_below[start:stop].tolist(),
        backoff=public.backoff[start:stop].tolist(),
        first_units=int(allowance.first[region]),
        selection_units=allowance.selection[first:last].tolist(),
        backoff_units=allowance.backoff[start:stop].tolist(),
    )


def fresh_state(agents: int) -> tuple[np.ndarray, ...]:
    """Return what the compiled rounds remember of each agent, before its first pick."""
    return (
        np.zeros(agents, dtype=np.int64),  # entry: where the strategy points
        np.zeros(agents, dtype=np.int32),  # rank: s - 1
        np.zeros(agents, dtype=np.int8),  # mode: what comes next, see the kernel
        np.zeros(agents, dtype=np.int64),  # spent
        np.zeros(agents, dtype=np.int64),  # actions charged
        np.zeros(agents, dtype=np.bool_),  # exhausted
        np.arange(agents, dtype=np.int32),  # who: its number in the whole game
        np.zeros(agents, dtype=np.int32),  # at: the resource that the entry stands for
    )


def trace_buffers(rows: int) -> tuple[np.ndarray, ...]:
    """Return room for so many rows of a trace: step, agent, resource, outcome."""
    return (
        np.empty(rows, dtype=np.int64),
        np.empty(rows, dtype=np.int64),
        np.empty(rows, dtype=np.int64),
        np.empty(rows, dtype=np.int8),
    )
