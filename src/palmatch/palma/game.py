"""PALMA's rounds, compiled: all agents at once, tables, rules and a privacy filter in, who holds what and its cost out.

It is the game of `device.agent`, its oracle, draw for draw. An agent plays once for each unit of its demand: each
player is a device of its own, with a share of its agent's budget, so that what all of them are charged stays within it.
That a resource is closed to an agent (full, in conflict, already its own) is public, and reaches a player as the answer
"taken".

A step has phases: mark what is attempted, act, and let go of who is done. Each works on a slice of the active players,
which threads share. Loops over players are written out rather than cut into functions: handing arrays to a function,
for each player, makes numba count references to them, which takes longer than the rest. Where there is no `Contest`
every resource has one unit, and branches for others are then not even compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from palmatch.device.agent import RegionTables, Rules
from palmatch.domains.geometry import worth
from palmatch.errors import DidNotConverge
from palmatch.matchers.alma import (
    ATTEMPTS,
    BACKS_OFF,
    CLOSED,
    COLLIDED,
    DONE,
    DOUBTS,
    FREE,
    HOLDS,
    LOOKS,
    MOST_STEPS,
    PAIRED,
    STAYS,
    TAKEN,
    WON,
    Contest,
    is_excluded,
    make_contest,
    settle_attempts,
    unit_shares,
    unit_streams,
)
from palmatch.matching import Trace
from palmatch.palma.accountant import PrivacyFilter
from palmatch.palma.policy import Policy, to_fixed_point
from palmatch.problem import Capacities, FloatArray, IntArray
from palmatch.regions.csr import stable_order
from palmatch.regions.noise import PublicTables, backoff_weight, expected_utility, fill_weights, pick
from palmatch.regions.own import Own, OwnTables
from palmatch.streams import BACKOFF, BACKOFF_COIN, SELECTION, SELECTION_COIN, Keys, compiled_mix, counter
from palmatch.threads import parallel_chunks, parallel_take, usual_threads

# Below so many active agents threads would wait for each other longer than they work.
FEW = 20_000


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
        to_fixed_point(policy.truth_selection),
        to_fixed_point(policy.truth_backoff),
        policy.gamma,
        to_fixed_point(policy.spent_backoff),
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
    progress: Callable[[int, int], None] | None = None,
) -> Outcomes:
    """Play until every agent holds what it wants or has nothing left to attempt.

    `progress` is told (players done, players in all) from time to time.
    """
    game = Game(public, private, rules, allowance, names=names, capacities=capacities, sort=not trace)
    parts = [_rows(0)]
    while len(game.active):
        if game.step > most_steps:
            raise DidNotConverge(
                f"{len(game.active)} of {game.players} agents were still playing after {most_steps:,} steps."
            )
        if trace:
            parts.append(game.play(1, _rows(len(game.active))))
        else:
            game.play(min(256, most_steps + 1 - game.step), parts[0])
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
        capacities: Capacities | None,
        sort: bool,
    ) -> None:
        regions, region, budget = public.regions, public.region_of_agent, allowance.budget
        self.rows, self.agents, self.step, self.actions = regions.rows, len(names), 1, 0
        self.contest: Contest | None = None
        cursor, words = regions.resource_start[:-1].copy(), np.zeros(len(regions.rows), dtype=np.int64)
        # The agent of each player; None where players are the agents in their order.
        self.agent_of: IntArray | None = None
        if capacities is not None:
            # Limits speak of resources as the problem does, tables by numbers of their own.
            self.contest = make_contest(capacities, regions.rows)
            self.agent_of, names = self.contest.owner, unit_streams(capacities, names)
            region, budget = region[self.agent_of], unit_shares(capacities, budget)
            cursor, words[self.contest.capacity <= 0] = regions.resource_start[region], HELD
        elif sort and not (np.diff(region) >= 0).all():
            self.agent_of = stable_order(region)
            region, names, budget = (_of(column, self.agent_of) for column in (region, names, budget))
        self.players = len(names)
        self.state, self.active = _fresh_state(self.players), np.arange(self.players, dtype=np.int32)
        self.spent, self.charged = np.zeros(self.players, dtype=np.int64), np.zeros(self.players, dtype=np.int64)
        offsets, entries = regions.rank_sets
        self.board = Board(words, np.zeros(len(offsets) - 1, dtype=np.bool_), cursor)
        utilities, own = _utilities(private)
        if self.agent_of is not None:
            own = [_of(column, self.agent_of) for column in own]
        self.fixed = Players(region, names, budget, *own)
        tables = Tables(
            regions.resource_start, regions.resources, regions.ranks, offsets, entries,
            public.selection_below, public.guide, public.backoff,
        )  # fmt: skip
        charges = Charges(allowance.first, allowance.selection, allowance.backoff)
        self.setup = Setup(rules, charges, tables, utilities, int(np.diff(offsets).max()))
        self._spread(lambda part: first_picks(part, self.setup, self.fixed, self.state))

    def play(self, steps: int, trace: Rows) -> Rows:
        """Play some steps; return the rows of the trace, if there is room for them."""
        until, written = self.step + steps, 0
        while self.step < until and len(self.active):
            last, alone = until, self.contest is not None or len(trace.step) > 0
            if not alone:
                self._compact()
                last = min(until, self.step + max(1, FEW // len(self.active)))
            if not alone and len(self.active) >= FEW and usual_threads() > 1:
                self._step_on_threads(trace)
                continue
            self.step, count, written = play(
                self.active, self.setup, self.fixed, self.state, self.board, self.contest, (self.step, last), trace
            )
            self.active = self.active[:count]
            self.actions += written
        return Rows._make(column[:written] for column in trace)

    def _compact(self) -> None:
        """Once half of those who are in memory have left, move the others together: what is read lies side by side."""
        if len(self.active) > len(self.fixed.region) // 2 or len(self.fixed.region) <= FEW:
            return
        self._note_charges()
        self.state = State._make(_of(column, self.active) for column in self.state)
        self.fixed = Players._make(_of(column, self.active) for column in self.fixed)
        self.active = np.arange(len(self.active), dtype=np.int32)

    def _note_charges(self) -> None:
        self.spent[self.state.number], self.charged[self.state.number] = self.state.spent, self.state.charged

    def _step_on_threads(self, none: Rows) -> None:
        """Play one step in pieces: all players claim, contest and act; those that are done leave."""
        state, board, step, tables, region = self.state, self.board, self.step, self.setup.tables, self.fixed.region
        self._spread(lambda part: claim(part, state, board.words, step))
        self._spread(lambda part: mark_rivals(part, state, board.words, step))
        acted = self._spread(lambda part: act(part, self.setup, self.fixed, state, board, None, step, none))
        kept = self._spread(lambda part: part[: keep(part, tables, region, state, board, None)])
        self.active, self.step, self.actions = np.concatenate(kept), step + 1, self.actions + sum(acted)

    def _spread(self, work: Callable[[NDArray[np.int32]], Any]) -> Sequence[Any]:
        """Return what some work gives for all parts of the active players."""
        active, total = self.active, len(self.active)
        # A smaller piece is done before another thread has begun.
        at_a_time = max(-(-total // (4 * usual_threads())), 256)
        return parallel_chunks(lambda start, stop: work(active[start:stop]), total, at_a_time=at_a_time)

    def outcomes(self, parts: Sequence[Rows] | None) -> Outcomes:
        """Return what the game ended in, with agents and resources as in the problem."""
        self._note_charges()
        agent_of = np.arange(self.players) if self.agent_of is None else self.agent_of
        spent, charged = np.zeros(self.agents, dtype=np.int64), np.zeros(self.agents, dtype=np.int64)
        np.add.at(spent, agent_of, self.spent)
        np.add.at(charged, agent_of, self.charged)
        if self.contest is None:
            held = np.flatnonzero(self.board.words >= HELD)
            resource_of = np.full(self.agents, -1, dtype=np.int64)
            resource_of[agent_of[self.board.words[held] - HELD]] = self.rows[held]
        else:
            won = np.flatnonzero(self.contest.holds >= 0)
            resource_of = np.column_stack((agent_of[won], self.rows[self.contest.holds[won]]))
        trace = None
        if parts is not None:
            step, player, resource, outcome = (np.concatenate(column) for column in zip(*parts, strict=True))
            trace = Trace(step, agent_of[player], self.rows[resource], outcome, np.zeros(len(step)))
        return Outcomes(resource_of, spent, charged, self.step - 1, trace, self.actions)


def _of(column: NDArray[Any], players: NDArray[Any]) -> NDArray[Any]:
    # A column that does not apply is empty.
    return parallel_take(column, players, threads=usual_threads()) if len(column) else column


def _utilities(private: Own) -> tuple[Utilities, list[NDArray[Any]]]:
    """Return where utilities come from, and each agent's row in them or its place."""
    none = np.empty(0)
    if isinstance(private, OwnTables):
        return Utilities(True, private.utility, none, none, -1.0), [private.start[:-1], none, none]
    utilities = Utilities(False, none, private.place_east, private.place_north, private.slope)
    return utilities, [np.empty(0, dtype=np.int64), private.east, private.north]


def region_tables(public: PublicTables, allowance: PrivacyFilter, region: int) -> RegionTables:
    """Return one region's tables as plain lists, for a device."""
    tables, (starts, entries) = public.regions, public.regions.rank_sets
    first, last = region * tables.ranks, (region + 1) * tables.ranks
    start, stop = int(starts[first]), int(starts[last])
    return RegionTables(
        resources=tables[region].resources.tolist(),
        offsets=(starts[first : last + 1] - start).tolist(),
        entries=entries[start:stop].tolist(),
        selection_below=public.selection_below[start:stop].tolist(),
        backoff=public.backoff[start:stop].tolist(),
        first_units=int(allowance.first[region]),
        selection_units=allowance.selection[first:last].tolist(),
        backoff_units=allowance.backoff[start:stop].tolist(),
    )


def _fresh_state(players: int) -> State:
    """Return what the compiled rounds remember of each player, before its first pick."""
    return State(
        entry=np.zeros(players, dtype=np.int64),
        rank=np.zeros(players, dtype=np.int32),
        mode=np.zeros(players, dtype=np.int8),
        spent=np.zeros(players, dtype=np.int64),
        charged=np.zeros(players, dtype=np.int64),
        exhausted=np.zeros(players, dtype=np.bool_),
        number=np.arange(players, dtype=np.int32),
        at=np.zeros(players, dtype=np.int32),
    )


def _rows(count: int) -> Rows:
    """Return room for so many rows of a trace."""
    step, player, resource = (np.empty(count, dtype=np.int64) for _ in range(3))
    return Rows(step, player, resource, np.empty(count, dtype=np.int8))


# The rounds, compiled.

# A word for each resource: the step of its last attempts times TAG, plus the player that attempted it, or SEVERAL if it
# served none of them; HELD, plus the player that holds its only seat, once it is full. Whether something is free is one
# comparison.
TAG, SEVERAL, HELD = 1 << 32, (1 << 32) - 1, ((1 << 31) - 1) << 32


class Tables(NamedTuple):
    """The public tables of all regions: see `regions.noise.PublicTables`."""

    resource_start: IntArray
    resources: NDArray[np.int32]
    ranks: int
    entry_start: IntArray
    entries: NDArray[np.int32]
    below: IntArray
    guide: NDArray[np.int32]
    backoff: IntArray


class Charges(NamedTuple):
    """Units for the first pick in each region, a selection at each rank set, a back-off at each entry."""

    first: IntArray
    selection: IntArray
    backoff: IntArray


class Utilities(NamedTuple):
    """Where utilities come from: a stored table, or e^(distance · slope) to the places of the resources."""

    stored: bool
    table: FloatArray
    place_east: FloatArray
    place_north: FloatArray
    slope: float


class Setup(NamedTuple):
    """What is the same for all players."""

    rules: Rules
    charges: Charges
    tables: Tables
    utilities: Utilities
    largest_set: int


class Players(NamedTuple):
    """What does not change of each player: region, stream, budget, and its row in the utilities or its place."""

    region: NDArray[np.int32]
    stream: Keys
    budget: IntArray
    start: IntArray
    east: FloatArray
    north: FloatArray


class State(NamedTuple):
    """What changes of each player: the entry that its strategy points to, s - 1, what it is about, its account.

    `number` is the player's number in the whole game, `at` the resource that the entry stands for.
    """

    entry: IntArray
    rank: NDArray[np.int32]
    mode: NDArray[np.int8]
    spent: IntArray
    charged: IntArray
    exhausted: NDArray[np.bool_]
    number: NDArray[np.int32]
    at: NDArray[np.int32]


class Board(NamedTuple):
    """What is held: words, which rank sets are held as a whole, and up to where all that one plays is held.

    There is a cursor for each region, or, with a `Contest`, for each player.
    """

    words: IntArray
    full: NDArray[np.bool_]
    cursor: IntArray


class Rows(NamedTuple):
    """Rows of a trace, or none."""

    step: IntArray
    player: IntArray
    resource: IntArray
    outcome: NDArray[np.int8]


@numba.njit(cache=True, nogil=True)
def draw_from(stream, common):  # type: ignore[no-untyped-def]  # compiled
    """Return `streams.draw` for a stream and a `counter`."""
    return np.int64(compiled_mix(stream ^ common) >> np.uint64(11))


@numba.njit(cache=True, nogil=True, inline="always")
def noise_entry(below, guide, start, stop, draw):  # type: ignore[no-untyped-def]  # compiled
    """Return the entry of a rank set that a draw falls on by the region's noise.

    The part of the guide that the draw is in says where to begin.
    """
    part = (np.uint64(draw >> 21) * np.uint64(stop - start)) >> np.uint64(32)
    entry = start + np.int64(guide[start + np.int64(part)])
    while below[entry] <= draw:
        entry += 1
    return entry


@numba.njit(cache=True, nogil=True, inline="always")
def fill_utilities(utilities, tables, players, player, entries, values):  # type: ignore[no-untyped-def]  # compiled
    """Write what the entries (start, stop, last), start to stop - 1 and then `last`, are worth to a player."""
    start, stop, last = entries
    count = stop - start
    if utilities.stored:
        for number in range(count + 1):
            entry = start + number if number < count else last
            values[number] = utilities.table[players.start[player] + tables.entries[entry]]
    else:
        first, x, y = tables.resource_start[players.region[player]], players.east[player], players.north[player]
        for number in range(count + 1):
            entry = start + number if number < count else last
            place = tables.resources[first + tables.entries[entry]]
            values[number] = abs(x - utilities.place_east[place]) + abs(y - utilities.place_north[place])
        # In a loop of its own, which processors do for several at once.
        for number in range(count + 1):
            values[number] = worth(values[number], utilities.slope)


@numba.njit(cache=True, nogil=True, inline="always")
def new_scratch(largest_set):  # type: ignore[no-untyped-def]  # compiled
    """Return room for the utilities of a rank set and one more, for the weights, and the numbers of its places."""
    # A loop compiles sooner than `np.arange`.
    places = np.empty(largest_set, dtype=np.int64)
    for place in range(largest_set):
        places[place] = place
    return np.empty(largest_set + 1), np.empty(largest_set, dtype=np.int64), places


@numba.njit(cache=True, nogil=True)
def first_picks(active, setup, players, state):  # type: ignore[no-untyped-def]  # compiled
    """Draw the first strategy of some players from P_S at s = 1 (Alg. 1, line 1)."""
    rules, charges, tables, utilities, largest_set = setup
    region_of, stream, budget, _, _, _ = players
    entry, _, mode, spent, charged, exhausted, _, at = state
    resource_start, resources, ranks, entry_start, entries, below, guide, _ = tables
    values, weights, places = new_scratch(largest_set)
    coin, selection = counter(0, SELECTION_COIN), counter(0, SELECTION)
    for player in active:
        region = region_of[player]
        start, stop = entry_start[region * ranks], entry_start[region * ranks + 1]
        draw = draw_from(stream[player], selection)
        units = charges.first[region]
        exhausted[player] = budget[player] <= 0 or units > budget[player]
        truthful = False
        if not exhausted[player]:
            spent[player] = units
            charged[player] = units > 0
            truthful = draw_from(stream[player], coin) < rules.truth_selection
        if truthful:
            fill_utilities(utilities, tables, players, player, (start, stop, start), values)
            fill_weights(values, places, 0, stop - start, weights)
            here = start + pick(weights, draw)
        else:
            here = noise_entry(below, guide, start, stop, draw)
        entry[player], at[player] = here, resources[resource_start[region] + entries[here]]
        mode[player] = ATTEMPTS


@numba.njit(cache=True, nogil=True)
def is_held(word, step):  # type: ignore[no-untyped-def]  # compiled
    """Return whether a resource is full when a step ends: who is alone on it holds it, has its turn come or not."""
    return word >= HELD or (word >= step * TAG and word != step * TAG + SEVERAL)


@numba.njit(cache=True, nogil=True)
def mark(active, state, words, step):  # type: ignore[no-untyped-def]  # compiled
    """Write the attempts of a step into the words, on one thread."""
    mode, at = state.mode, state.at
    for player in active:
        if mode[player] == ATTEMPTS:
            resource = at[player]
            words[resource] = step * TAG + (SEVERAL if words[resource] >= step * TAG else player)


@numba.njit(cache=True, nogil=True)
def claim(active, state, words, step):  # type: ignore[no-untyped-def]  # compiled
    """Write one's number on what one attempts. Several threads at once: one of the numbers stays, no matter which."""
    mode, at = state.mode, state.at
    for player in active:
        if mode[player] == ATTEMPTS:
            words[at[player]] = step * TAG + player


@numba.njit(cache=True, nogil=True)
def mark_rivals(active, state, words, step):  # type: ignore[no-untyped-def]  # compiled
    """After all `claim`s: a player that does not find its own number writes SEVERAL. Then words are as by `mark`."""
    mode, at = state.mode, state.at
    for player in active:
        if mode[player] == ATTEMPTS:
            resource = at[player]
            if words[resource] != step * TAG + player:
                words[resource] = step * TAG + SEVERAL


@numba.njit(cache=True, nogil=True)
def mark_contest(active, state, words, contest, step):  # type: ignore[no-untyped-def]  # compiled
    """Give units to those who attempt, and write into the words what became full and what served none of them."""
    number, attempting, result, mode, at = contest.number, contest.attempting, contest.result, state.mode, state.at
    for player in active:
        attempting[player] = mode[player] == ATTEMPTS
    settle_attempts(contest, active, at, step)
    for player in active:
        if result[player] != WON and result[player] != COLLIDED:
            continue
        resource = at[player]
        if result[player] == COLLIDED:
            words[resource] = step * TAG + SEVERAL
        elif contest.taken[resource] >= contest.capacity[resource]:
            words[resource] = HELD
        if len(number) > 0:
            # Both ends of a pair.
            words[number[contest.owner[player]]] = words[resource]


@numba.njit(cache=True, nogil=True)
def act(active, setup, players, state, board, contest, step, trace):  # type: ignore[no-untyped-def]  # compiled
    """Let some players act, once all attempts of the step are marked; return how many did. Order does not matter."""
    rules, charges, tables, utilities, largest_set = setup
    region_of, stream, budget, _, _, _ = players
    entry, rank, mode, spent, charged, exhausted, number, at = state
    words, full, _ = board
    truth_selection, truth_backoff, gamma, spent_backoff = rules
    resource_start, resources, ranks, entry_start, entries, below, guide, backoff = tables
    tracing, acted = len(trace.step) > 0, 0
    selection_coin, selection = counter(step, SELECTION_COIN), counter(step, SELECTION)
    backoff_coin, backing_off = counter(step, BACKOFF_COIN), counter(step, BACKOFF)
    values, weights, places = new_scratch(largest_set)
    for player in active:
        attempts, here, resource = mode[player] == ATTEMPTS, entry[player], at[player]
        if contest is None:
            result = WON if attempts and words[resource] == step * TAG + player else COLLIDED
        else:
            result = contest.result[player]
            if result == PAIRED and not attempts:
                mode[player] = DONE
                continue
        if result == WON:
            if contest is None:
                words[resource] = HELD + number[player]
            mode[player] = DONE
            outcome = HOLDS
        elif result in (CLOSED, PAIRED):
            mode[player] = DOUBTS if result == CLOSED else DONE
            outcome = TAKEN
        else:
            region = region_of[player]
            first, last = np.int64(region) * ranks, (np.int64(region) + 1) * ranks
            following = first + rank[player] + 1 if first + rank[player] + 1 < last else first
            start, stop = entry_start[following], entry_start[following + 1]
            # Charge the action if there is room for it; once there is none, never again.
            truthful = False
            if not exhausted[player]:
                units = charges.backoff[here] if attempts else charges.selection[following]
                if spent[player] + units > budget[player]:
                    exhausted[player] = True
                else:
                    spent[player] += units
                    charged[player] += units > 0
                    coin, truth = (backoff_coin, truth_backoff) if attempts else (selection_coin, truth_selection)
                    truthful = draw_from(stream[player], coin) < truth
            if truthful:
                more = (start, stop, here if attempts else start)
                fill_utilities(utilities, tables, players, player, more, values)
            if attempts:
                chance = spent_backoff if spent_backoff > 0 and exhausted[player] else backoff[here]
                if truthful:
                    alternative = expected_utility(values, places, 0, stop - start)
                    chance = backoff_weight(values[stop - start], alternative, gamma)
                backs_off = draw_from(stream[player], backing_off) < chance
                mode[player] = LOOKS if backs_off else ATTEMPTS
                outcome = BACKS_OFF if backs_off else STAYS
            else:
                draw = draw_from(stream[player], selection)
                if truthful:
                    fill_weights(values, places, 0, stop - start, weights)
                    here = start + pick(weights, draw)
                elif stop - start == 1:
                    here = start
                else:
                    here = noise_entry(below, guide, start, stop, draw)
                place = resource_start[region]
                resource = resources[place + entries[here]]
                if spent_backoff > 0 and exhausted[player]:
                    # In a circle to the first of the set that is not closed; from a set that is closed as a whole to
                    # the next one that is not, with the same draw. What is held stays held, and so does a whole set.
                    drawn_entry, drawn_set, choice = here, following, here
                    while True:
                        closed = is_held(words[resource], step)
                        if contest is not None:
                            closed = closed or is_excluded(contest, contest.owner[player], resource)
                        if not closed:
                            break
                        if not full[following]:
                            here = here + 1 if here + 1 < stop else start
                            if here != choice:
                                resource = resources[place + entries[here]]
                                continue
                            # What is barred to one agent is open to others.
                            full[following] = contest is None
                        following = following + 1 if following + 1 < last else first
                        if following == drawn_set:
                            here, resource = drawn_entry, resources[place + entries[drawn_entry]]
                            break
                        if not full[following]:
                            start, stop = entry_start[following], entry_start[following + 1]
                            here = noise_entry(below, guide, start, stop, draw)
                            choice, resource = here, resources[place + entries[here]]
                rank[player] = following - first
                entry[player], at[player] = here, resource
                # Held, or attempted in this step; a word that goes from one to the other meanwhile changes nothing.
                free = words[resource] < step * TAG
                if contest is not None:
                    free = free and not is_excluded(contest, contest.owner[player], resource)
                mode[player] = ATTEMPTS if free else DOUBTS
                outcome = FREE if free else TAKEN
        if tracing:
            trace.step[acted], trace.player[acted] = step, number[player]
            trace.resource[acted], trace.outcome[acted] = resource, outcome
        acted += 1
    return acted


@numba.njit(cache=True, nogil=True)
def keep(active, tables, region_of, state, board, contest):  # type: ignore[no-untyped-def]  # compiled
    """Move those who go on to the front of `active`; return how many they are.

    A player that holds something is done, and so is one with nothing left to attempt, which has found something closed.
    Everything that a region plays before its cursor is held.
    """
    resource_start, resources, mode, words, cursor = (
        tables.resource_start, tables.resources, state.mode, board.words, board.cursor,
    )  # fmt: skip
    kept = 0
    for player in active:
        if mode[player] == DONE:
            continue
        if mode[player] == DOUBTS:
            region = region_of[player]
            own = np.int64(region) if contest is None else np.int64(player)
            place, stop = cursor[own], resource_start[region + 1]
            while place < stop:
                closed = words[resources[place]] >= HELD
                if contest is not None:
                    closed = closed or is_excluded(contest, contest.owner[player], resources[place])
                if not closed:
                    break
                place += 1
            cursor[own] = place
            if place == stop:
                continue
            mode[player] = LOOKS
        active[kept] = player
        kept += 1
    return kept


@numba.njit(cache=True, nogil=True)
def play(active, setup, players, state, board, contest, steps, trace):  # type: ignore[no-untyped-def]  # compiled
    """Play from one step up to another, or until no player is active; return (next step, active players, actions)."""
    step, last_step = steps
    rows, count = 0, len(active)
    while count > 0 and step < last_step:
        here = active[:count]
        if contest is None:
            mark(here, state, board.words, step)
        else:
            mark_contest(here, state, board.words, contest, step)
        rest = Rows(trace.step[rows:], trace.player[rows:], trace.resource[rows:], trace.outcome[rows:])
        rows += act(here, setup, players, state, board, contest, step, rest)
        count = keep(here, setup.tables, players.region, state, board, contest)
        step += 1
    return step, count, rows
