"""One game cut into tiles: each tile has some regions and their agents, and tells the others only what they can meet.

A resource that is played from more than one tile is a border resource. Once a round, after marking its attempts, a tile
tells its neighbours which border resources were attempted, and whether by several; an agent alone on one holds it for
good, so that nothing else has to be told. The rules of the game are those of `rounds.kernel`, phase by phase; draws are
keyed by agent and step; so the matching and the charges are those of `rounds.game.simulate`, bit for bit. Nothing in
here knows of machines: a round of a tile is a function from a state and messages to a state and a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields, replace

import numpy as np

from palmatch.device.agent import Rules
from palmatch.privacy.accountants import Allowance
from palmatch.problem import FloatArray, IntArray
from palmatch.rounds import kernel
from palmatch.rounds.draws import Keys
from palmatch.rounds.game import Game, Outcomes, fresh_state, trace_buffers
from palmatch.rounds.tables import Own, OwnPlaces, OwnTables, Private, PublicTables, SmallArray, members_of, starts

# Where in the state of the agents these are; see `rounds.game`.
_ENTRY, _SPENT, _CHARGED, _WHO, _AT = 0, 3, 4, 6, 7


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """Some regions with everything that their agents need to play; it never changes.

    Attributes
    ----------
    agents, resources:
        Their numbers in the whole game, by their numbers in the tile.
    public, charges, private, names, budget:
        What `rounds.kernel` takes, for this tile's regions and agents.
    border:
        The tile's resources that other tiles play too, ascending.
    neighbours:
        The tiles that play some of them.
    """

    agents: IntArray
    resources: IntArray
    public: tuple[np.ndarray, ...]
    rules: tuple[int, int, float, int]
    charges: tuple[IntArray, IntArray, IntArray]
    private: Private
    names: Keys
    budget: IntArray
    largest_set: int
    border: IntArray
    neighbours: tuple[int, ...]

    def __sizeof__(self) -> int:
        return _bytes(self)


@dataclass(frozen=True, slots=True, eq=False)
class TileState:
    """What a tile's agents are about: `step` is the next one, `last` the last in which an agent acted."""

    step: int
    last: int
    actions: int
    agents: tuple[np.ndarray, ...]
    words: IntArray
    cursor: IntArray
    full: np.ndarray
    active: SmallArray

    def __sizeof__(self) -> int:
        return _bytes(self)


@dataclass(frozen=True, slots=True, eq=False)
class Attempts:
    """What a tile tells others about a step: border resources, by their numbers in the whole game, ascending.

    `several` says of each whether two or more of the tile's agents attempted it.
    """

    resources: IntArray
    several: np.ndarray


def _bytes(record: Tile | TileState) -> int:
    """Return how much there is to move: Dask sends around what seems small."""
    parts = [getattr(record, part.name) for part in fields(record)]
    arrays = [one for part in parts for one in (part if isinstance(part, tuple) else (part,))]
    return sum(one.nbytes for one in arrays if isinstance(one, np.ndarray))


def tiles_of(places: FloatArray | None, weights: IntArray, count: int) -> IntArray:
    """Group regions into so many tiles of about the same weight, near ones together; return each region's tile.

    Parts are halved across their longer side. Without places, neighbours in the order of the regions stay together.
    """
    where = np.arange(len(weights), dtype=np.float64)[:, None] if places is None else places
    tile = np.zeros(len(weights), dtype=np.int64)
    _halve(np.arange(len(weights)), where, weights, (0, count), tile)
    return np.unique(tile, return_inverse=True)[1].astype(np.int64)


def _halve(part: IntArray, places: FloatArray, weights: IntArray, numbers: tuple[int, int], tile: IntArray) -> None:
    first, last = numbers
    if last - first == 1 or len(part) <= 1:
        tile[part] = first
        return
    middle = (first + last) // 2
    axis = int(np.ptp(places[part], axis=0).argmax())
    ordered = part[np.argsort(places[part, axis], kind="stable")]
    share = np.cumsum(weights[ordered]) * (last - first)
    cut = int(np.clip(np.searchsorted(share, share[-1] / (last - first) * (middle - first)) + 1, 1, len(part) - 1))
    _halve(ordered[:cut], places, weights, (first, middle), tile)
    _halve(ordered[cut:], places, weights, (middle, last), tile)


def cut(
    public: PublicTables,
    private: Own,
    rules: Rules,
    allowance: Allowance,
    *,
    names: Keys,
    tile_of_region: IntArray,
) -> list[Tile]:
    """Cut a game into tiles."""
    count = int(tile_of_region.max()) + 1
    regions = members_of(tile_of_region, count)
    agents = members_of(tile_of_region[public.region_of_agent], count)
    resources = [_resources(public, part) for part in regions]
    played_in = np.zeros(len(public.rows), dtype=np.int64)
    for mine in resources:
        played_in[mine] += 1
    borders = [mine[played_in[mine] > 1] for mine in resources]
    return [
        _tile(public, private, rules, allowance, names, part, members, mine, border, _neighbours(number, borders))
        for number, (part, members, mine, border) in enumerate(zip(regions, agents, resources, borders, strict=True))
    ]


def _resources(public: PublicTables, regions: IntArray) -> IntArray:
    """Return what some regions play, ascending."""
    places = _ranges(public.resource_start, regions)
    return np.unique(public.resources[places]).astype(np.int64)


def _neighbours(number: int, borders: Sequence[IntArray]) -> tuple[int, ...]:
    mine = borders[number]
    return tuple(
        other for other, theirs in enumerate(borders) if other != number and len(np.intersect1d(mine, theirs)) > 0
    )


def _ranges(start: IntArray, chosen: IntArray) -> IntArray:
    """Return start[c], start[c] + 1, ... start[c + 1] - 1 for all chosen c, one after the other."""
    sizes = start[chosen + 1] - start[chosen]
    return np.repeat(start[chosen] - starts(sizes)[:-1], sizes) + np.arange(sizes.sum())


def _tile(
    public: PublicTables,
    private: Own,
    rules: Rules,
    allowance: Allowance,
    names: Keys,
    regions: IntArray,
    agents: IntArray,
    resources: IntArray,
    border: IntArray,
    neighbours: tuple[int, ...],
) -> Tile:
    number_of_region = np.zeros(len(public.resource_start) - 1, dtype=np.int32)
    number_of_region[regions] = np.arange(len(regions))
    ranks = _ranges(public.rank_start, regions)
    entries, places = _ranges(public.entry_start, ranks), _ranges(public.resource_start, regions)
    tables = replace(
        public,
        region_of_agent=number_of_region[public.region_of_agent[agents]],
        resource_start=starts(np.diff(public.resource_start)[regions]),
        resources=np.searchsorted(resources, public.resources[places]).astype(np.int32),
        rank_start=starts(np.diff(public.rank_start)[regions]),
        entry_start=starts(np.diff(public.entry_start)[ranks]),
        entries=public.entries[entries],
        selection_below=public.selection_below[entries],
        guide=public.guide[entries],
        backoff=public.backoff[entries],
        rows=public.rows[resources],
    )
    return Tile(
        agents=agents,
        resources=resources,
        public=tables.arrays,
        rules=astuple(rules),
        charges=(allowance.first[regions], allowance.selection[ranks], allowance.backoff[entries]),
        private=_own(private, agents, resources).arrays(None),
        names=names[agents],
        budget=allowance.budget[agents],
        largest_set=public.largest_set,
        border=border,
        neighbours=neighbours,
    )


def _own(private: Own, agents: IntArray, resources: IntArray) -> Own:
    if isinstance(private, OwnPlaces):
        return replace(
            private,
            east=private.east[agents],
            north=private.north[agents],
            place_east=private.place_east[resources],
            place_north=private.place_north[resources],
        )
    return OwnTables(starts(np.diff(private.start)[agents]), private.utility[_ranges(private.start, agents)])


def begin(tile: Tile) -> TileState:
    """Draw each agent's first strategy, and mark what is attempted first."""
    count = len(tile.agents)
    agents = fresh_state(count)
    # The marks name agents by their numbers in the whole game.
    agents[_WHO][:] = tile.agents
    kernel.first_picks(
        (0, count),
        tile.names,
        tile.rules,
        tile.charges,
        tile.public,
        tile.private,
        tile.budget,
        agents,
        tile.largest_set,
    )
    words, active = np.zeros(len(tile.resources), dtype=np.int64), np.arange(count, dtype=np.int32)
    kernel.mark(active, (0, count), agents, words, 1)
    cursor, full = tile.public[1][:-1].copy(), np.zeros(len(tile.public[4]) - 1, dtype=np.bool_)
    return TileState(1, 0, 0, agents, words, cursor, full, active)


def attempts(tile: Tile, state: TileState) -> Attempts:
    """Return what the others have to know about this tile's attempts of the next step."""
    words = state.words[np.searchsorted(tile.resources, tile.border)]
    tag = state.step * kernel.TAG
    marked = np.flatnonzero((words >= tag) & (words < kernel.HELD))
    return Attempts(tile.border[marked], words[marked] == tag + kernel.SEVERAL)


def play_round(tile: Tile, state: TileState, others: Sequence[Attempts]) -> TileState:
    """Play the next step, knowing what the neighbours attempt in it; nothing that is given is changed."""
    step, words, active = state.step, state.words.copy(), state.active.copy()
    cursor, full = state.cursor.copy(), state.full.copy()
    for told in others:
        _receive(tile, words, told, step)
    agents = tuple(column.copy() for column in state.agents)
    playing = len(active)
    kernel.act(
        active, (0, playing), tile.names, tile.rules, tile.charges, tile.public, tile.private, tile.budget, agents,
        (words, full), step, tile.largest_set, trace_buffers(0),
    )  # fmt: skip
    active = active[: kernel.keep(active, (0, playing), tile.public, agents, words, cursor)]
    kernel.mark(active, (0, len(active)), agents, words, step + 1)
    last = step if playing else state.last
    return TileState(step + 1, last, state.actions + playing, agents, words, cursor, full, active)


def _receive(tile: Tile, words: IntArray, told: Attempts, step: int) -> None:
    """Write what another tile attempted into this tile's own marks (`words`)."""
    known = np.isin(told.resources, tile.border, assume_unique=True)
    here = np.searchsorted(tile.resources, told.resources[known])
    # An agent that is alone on a resource holds it for good; here it is then held from elsewhere.
    contested = told.several[known] | (words[here] >= step * kernel.TAG)
    words[here] = np.where(contested, step * kernel.TAG, kernel.HELD) + kernel.SEVERAL


def _held(state: TileState) -> IntArray:
    """Return the resources that are held by agents of the tile."""
    return np.flatnonzero((state.words >= kernel.HELD) & (state.words < kernel.HELD + kernel.SEVERAL))


def gathered(game: Game, tiles: Sequence[Tile], states: Sequence[TileState], *, public: PublicTables) -> None:
    """Take a game that has just begun on one machine to where the tiles are, so that it goes on there.

    What the tiles have marked for the next step is marked again when it is played.
    """
    active = [tile.agents[state.active] for tile, state in zip(tiles, states, strict=True)]
    for tile, state in zip(tiles, states, strict=True):
        regions = np.unique(public.region_of_agent[tile.agents]).astype(np.int64)
        entries = _ranges(public.entry_start, _ranges(public.rank_start, regions))
        numbers = {_ENTRY: entries, _AT: tile.resources}
        for number, (column, mine) in enumerate(zip(game.state, state.agents, strict=True)):
            column[tile.agents] = numbers[number][mine] if number in numbers else mine
        held = _held(state)
        game.words[tile.resources[held]] = state.words[held]
    game.active = np.sort(np.concatenate(active)).astype(np.int32)
    game.step, game.actions = states[0].step, sum(state.actions for state in states)


def outcomes(tiles: Sequence[Tile], states: Sequence[TileState], rows: IntArray) -> Outcomes:
    """Put together what the tiles ended in, with agents and resources as in the problem."""
    count = sum(len(tile.agents) for tile in tiles)
    resource_of, spent, charged = (np.full(count, fill, dtype=np.int64) for fill in (-1, 0, 0))
    for tile, state in zip(tiles, states, strict=True):
        spent[tile.agents], charged[tile.agents] = state.agents[_SPENT], state.agents[_CHARGED]
        held = _held(state)
        resource_of[state.words[held] - kernel.HELD] = rows[tile.resources[held]]
    steps, actions = max(state.last for state in states), sum(state.actions for state in states)
    return Outcomes(resource_of, spent, charged, steps, None, actions)
