"""A game of rounds from start to end: tables, rules and an allowance in, who holds what and what it cost out.

`simulate` plays the compiled game; `device.agent.Agent` is its oracle, with which it agrees in every bit. An agent
plays once for each unit of its demand: each player is a device of its own, with a share of its agent's budget, so that
what all of them are charged stays within it. That a resource is closed to an agent (full, in conflict, already its own)
is public, and reaches a player as the answer "taken".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from palmatch.device.agent import RegionTables, Rules
from palmatch.errors import DidNotConverge
from palmatch.matchers.contest import Contest, clones_of, make_contest
from palmatch.matching import Trace
from palmatch.palma import kernel
from palmatch.palma.accountant import PrivacyFilter
from palmatch.palma.policy import Policy, on_grid
from palmatch.problem import Capacities, IntArray
from palmatch.regions.csr import stable_order
from palmatch.regions.noise import PublicTables
from palmatch.regions.own import Own, OwnTables
from palmatch.streams import Keys
from palmatch.threads import spread, taken, usual_threads

# How many steps are played between two looks at the clock and at Ctrl-C.
_STEPS_AT_ONCE = 256

# How many rows of a trace are written at once.
_ROWS_AT_ONCE = 4_000_000

MOST_STEPS = 10_000_000

# Below so many active agents threads would wait for each other longer than they work.
FEW = 20_000

# A piece of work below this is done before another thread has begun.
_LEAST_PIECE = 256


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What the rounds ended in: for each agent its resource (-1: none), units spent, and charged actions.

    With capacities `resource_of` has a row (agent, resource) for every unit. `steps` were played by whoever was still
    active; `actions` is how much all agents did in them, charged or not.
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
    allowance: PrivacyFilter,
    *,
    names: Keys,
    capacities: Capacities | None = None,
    trace: bool = False,
    most_steps: int = MOST_STEPS,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Outcomes:
    """Play until every agent holds what it wants or has nothing left to attempt.

    `threads` changes how long it takes, and nothing else. `progress` is told (players done, players in all) from time
    to time.
    """
    game = Game(public, private, rules, allowance, names=names, capacities=capacities, sort=not trace, threads=threads)
    parts = [_rows(0)]
    while len(game.active):
        if game.step > most_steps:
            raise DidNotConverge(
                f"{len(game.active)} of {game.players} agents were still playing after {most_steps:,} steps."
            )
        steps = min(_STEPS_AT_ONCE, most_steps + 1 - game.step)
        if trace:
            steps = min(steps, max(1, _ROWS_AT_ONCE // len(game.active)))
            buffers = _rows(len(game.active) * steps)
            rows = game.play(steps, buffers)
            parts.append(kernel.Rows._make(column[:rows] for column in buffers))
        else:
            game.play(steps)
        if progress is not None:
            progress(game.players - len(game.active), game.players)
    return game.outcomes(parts if trace else None)


class Game:
    """A compiled game under way: what every player is about, and what is held.

    Players of a game without capacities are sorted by region, whose tables then stay at hand; nothing depends on it.
    """

    def __init__(
        self,
        public: PublicTables,
        private: Own,
        rules: Rules,
        allowance: PrivacyFilter,
        *,
        names: Keys,
        capacities: Capacities | None = None,
        sort: bool = True,
        threads: int | None = None,
    ) -> None:
        self.threads = usual_threads() if threads is None else threads
        self.rows, self.agents, self.step, self.actions = public.rows, len(names), 1, 0
        region, budget = public.region_of_agent, allowance.budget
        self.contest: Contest | None = None
        cursor, words = public.resource_start[:-1].copy(), np.zeros(len(public.rows), dtype=np.int64)
        # The agent of each player; None where players are the agents in their order.
        self.agent_of: IntArray | None = None
        if capacities is not None:
            clones = clones_of(capacities)
            self.agent_of, budget, names = clones.owner, clones.shares(budget), clones.streams(names)
            # Limits speak of resources as the problem does, tables by numbers of their own.
            self.contest = make_contest(clones, public.rows)
            region, words[self.contest.limits.capacity <= 0] = region[clones.owner], kernel.HELD
            cursor = public.resource_start[region]
        elif sort and not (np.diff(region) >= 0).all():
            self.agent_of = stable_order(region)
            region, names, budget = (self._of(column, self.agent_of) for column in (region, names, budget))
        self.players = len(names)
        self.state, self.active = _fresh_state(self.players), np.arange(self.players, dtype=np.int32)
        self.spent, self.charged = np.zeros(self.players, dtype=np.int64), np.zeros(self.players, dtype=np.int64)
        self.board = kernel.Board(words, np.zeros(public.layout.ranks, dtype=np.bool_), cursor)
        utilities, own = self._own(private)
        self.fixed = kernel.Players(region, names, budget, *own)
        tables = kernel.Tables(
            public.resource_start, public.resources, public.rank_start, public.entry_start, public.entries,
            public.selection_below, public.guide, public.backoff,
        )  # fmt: skip
        charges = kernel.Charges(allowance.first, allowance.selection, allowance.backoff)
        self.setup = kernel.Setup(rules, charges, tables, utilities, public.largest_set)
        self._spread(lambda part: kernel.first_picks(part, self.setup, self.fixed, self.state))

    def _own(self, private: Own) -> tuple[kernel.Utilities, list[NDArray[Any]]]:
        """Return where utilities come from, and each player's row in them or its place."""
        none = np.empty(0)
        if isinstance(private, OwnTables):
            utilities = kernel.Utilities(True, private.utility, none, none, -1.0)
            columns = [private.start[:-1], none, none]
        else:
            utilities = kernel.Utilities(False, none, private.place_east, private.place_north, private.slope)
            columns = [np.empty(0, dtype=np.int64), private.east, private.north]
        if self.agent_of is None:
            return utilities, columns
        return utilities, [self._of(column, self.agent_of) if len(column) else column for column in columns]

    def play(self, steps: int, trace: kernel.Rows | None = None) -> int:
        """Play some steps; return how many actions there were."""
        before, until = self.actions, self.step + steps
        while self.step < until and len(self.active):
            last = until
            if trace is None and self.contest is None:
                self._compact()
                last = min(until, self.step + max(1, FEW // len(self.active)))
            if trace is None and self.contest is None and len(self.active) >= FEW and self.threads > 1:
                self._step_on_threads()
            else:
                self._steps_on_one_thread(last, trace or _rows(0))
        return self.actions - before

    def _steps_on_one_thread(self, until: int, trace: kernel.Rows) -> None:
        self.step, count, actions = kernel.play(
            self.active, self.setup, self.fixed, self.state, self.board, self.contest, (self.step, until), trace
        )
        self.active = self.active[:count]
        self.actions += actions

    def _compact(self) -> None:
        """Once half of those who are in memory have left, move the others together: what is read lies side by side."""
        if len(self.active) > len(self.fixed.region) // 2 or len(self.fixed.region) <= FEW:
            return
        self._note_charges()
        stay = self.active
        # What no other party knows of moves within its own memory; fresh memory is slow.
        columns = self.state
        moved = spread(lambda at, _: kernel.compact(stay, columns[at]), len(columns), at_a_time=1, threads=self.threads)
        self.state = kernel.State(*moved)
        self.fixed = kernel.Players._make(self._of(column, stay) if len(column) else column for column in self.fixed)
        self.active = np.arange(len(stay), dtype=np.int32)

    def _note_charges(self) -> None:
        self.spent[self.state.number], self.charged[self.state.number] = self.state.spent, self.state.charged

    def _step_on_threads(self) -> None:
        """Play one step in pieces: all players claim, contest and act; those that are done leave."""
        state, board, step, none = self.state, self.board, self.step, _rows(0)
        self._spread(lambda part: kernel.claim(part, state, board.words, step))
        self._spread(lambda part: kernel.mark_rivals(part, state, board.words, step))
        self.actions += sum(
            self._spread(lambda part: kernel.act(part, self.setup, self.fixed, state, board, None, step, none))
        )
        tables, region = self.setup.tables, self.fixed.region
        kept = self._spread(lambda part: part[: kernel.keep(part, tables, region, state, board, None)])
        self.active = np.concatenate(kept)
        self.step += 1

    def _spread(self, work: Callable[[NDArray[np.int32]], Any]) -> Sequence[Any]:
        """Return what some work gives for all parts of the active players."""
        active, total = self.active, len(self.active)
        at_a_time = max(-(-total // (4 * self.threads)), _LEAST_PIECE)
        return spread(lambda start, stop: work(active[start:stop]), total, at_a_time=at_a_time, threads=self.threads)

    def _of(self, column: NDArray[Any], players: NDArray[Any]) -> NDArray[Any]:
        return taken(column, players, threads=self.threads)

    def outcomes(self, parts: Sequence[kernel.Rows] | None = None) -> Outcomes:
        """Return what the game ended in, with agents and resources as in the problem."""
        self._note_charges()
        agent_of = np.arange(self.players) if self.agent_of is None else self.agent_of
        spent, charged = np.zeros(self.agents, dtype=np.int64), np.zeros(self.agents, dtype=np.int64)
        np.add.at(spent, agent_of, self.spent)
        np.add.at(charged, agent_of, self.charged)
        if self.contest is None:
            held = np.flatnonzero(self.board.words >= kernel.HELD)
            resource_of = np.full(self.agents, -1, dtype=np.int64)
            resource_of[agent_of[self.board.words[held] - kernel.HELD]] = self.rows[held]
        else:
            won = np.flatnonzero(self.contest.holds >= 0)
            resource_of = np.column_stack((agent_of[won], self.rows[self.contest.holds[won]]))
        trace = None
        if parts is not None:
            step, player, resource, outcome = (np.concatenate(column) for column in zip(*parts, strict=True))
            trace = Trace(step, agent_of[player], self.rows[resource], outcome, np.zeros(len(step)))
        return Outcomes(resource_of, spent, charged, self.step - 1, trace, self.actions)


def region_tables(public: PublicTables, allowance: PrivacyFilter, region: int) -> RegionTables:
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


def _fresh_state(players: int) -> kernel.State:
    """Return what the compiled rounds remember of each player, before its first pick."""
    return kernel.State(
        entry=np.zeros(players, dtype=np.int64),
        rank=np.zeros(players, dtype=np.int32),
        mode=np.zeros(players, dtype=np.int8),
        spent=np.zeros(players, dtype=np.int64),
        charged=np.zeros(players, dtype=np.int64),
        exhausted=np.zeros(players, dtype=np.bool_),
        number=np.arange(players, dtype=np.int32),
        at=np.zeros(players, dtype=np.int32),
    )


def _rows(count: int) -> kernel.Rows:
    """Return room for so many rows of a trace."""
    step, player, resource = (np.empty(count, dtype=np.int64) for _ in range(3))
    return kernel.Rows(step, player, resource, np.empty(count, dtype=np.int8))
