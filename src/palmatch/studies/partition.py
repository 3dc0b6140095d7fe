"""One matching of more agents than a process holds: every agent reports once, then tiles of the map are matched.

Agents and resources are dealt to public squares. A tile is a block of whole squares. `draw_tile` chooses channels from
public counts and resources and draws the reports of its agents; the file that holds them is on the disk before anything
is matched, and is never written a second time. `match_tile` knows reports, squares and resources, and nothing else of
an agent. Pairs near the border of a tile wait for tiles that are shifted by whole squares; the last tiles keep all.
Tasks run on any `concurrent.futures.Executor` whose workers share the folder; no process ever holds all rows.
"""

from __future__ import annotations

import io
import secrets
import shutil
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor
from dataclasses import dataclass, replace
from math import ceil, sqrt
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from palmatch.atomic import make_folder, write_atomic, write_once
from palmatch.data.files import DistinctIds, identifiers, sheet_of
from palmatch.domains import mobility
from palmatch.domains.geometry import PublicPlaces, spots_of, utility_of_pairs
from palmatch.domains.mobility import City, Points, metres_of, points_of, squares_of
from palmatch.errors import InputError, PalmatchError
from palmatch.guarantee import doubts, region_only, simulated, with_limits
from palmatch.matching import Guarantee
from palmatch.mechanisms.channel import Channel, constant_channel, make_channel
from palmatch.mechanisms.choice import Population, response_channels
from palmatch.methods import Settings, Workspace, budgets
from palmatch.methods.reports import (
    ReportPlan,
    auction,
    cells_of,
    draw_reports,
    optimal,
    plan_bids,
    populations_of,
    regions_and_priors,
    report_guarantee,
    reserve_prices,
)
from palmatch.palma.accountant import check_budget
from palmatch.problem import FloatArray, IntArray, Problem, given_or, make_problem
from palmatch.streams import Randomness, keys_of, streams
from palmatch.studies.tasks import check_settings
from palmatch.threads import wait_for_any

# Rows that are read at a time, and agents or resources that a tile may have: a hundred bytes of each row, and a
# kilobyte of each agent, are in memory at once.
CHUNK_ROWS, TILE_AGENTS = 500_000, 100_000

# The matchings after the first one, on tiles shifted by this share of their edge to the east and to the north: wherever
# two borders of the first two cross, the third has no border near.
SHIFTS = (0.0, 0.5, 0.25)

# Keys of ids that one process compares with each other.
_KEYS_AT_ONCE = 4_000_000

# Ids by which each tile tells where the parts of the result begin, and rows of a part.
_SAMPLE, _PART_ROWS = 64, 4_000_000

Tile: TypeAlias = tuple[int, int]
Progress: TypeAlias = Callable[[str, int, int], None]

MATCHERS = {"once": auction, "hungarian-once": optimal, "hungarian-region": optimal}


@dataclass(frozen=True, slots=True)
class Partition:
    """What all tasks know: numbers that are public, and the folder that they share.

    Attributes
    ----------
    folder, method, settings, interest, capacity, demand:
        As `match_partitioned` takes them.
    edge, alpha, spacing, origin:
        Of the mobility domain.
    middle:
        Latitude and longitude of the middle of the resources, where the flat map has its centre.
    block, margin:
        The edge of a tile in squares, and how near to its border pairs are left to the next tiles.
    published:
        The seed of public streams, which break ties.
    are_numbers:
        Whether all ids of agents, and of resources, are whole numbers, which are then ordered as such.
    is_limited:
        Whether capacities or demands are given.
    """

    folder: Path
    method: str
    settings: Settings
    interest: int
    edge: float
    alpha: float
    spacing: float
    origin: tuple[float, float]
    capacity: int | None = None
    demand: int | None = None
    middle: tuple[float, float] = (0.0, 0.0)
    block: int = 4
    margin: int = 1
    published: int = 0
    are_numbers: tuple[bool, bool] = (False, False)
    is_limited: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be used before anything is read."""
        mobility.check_metres(edge=self.edge, alpha=self.alpha, spacing=self.spacing)
        mobility.check_grid(np.array([self.edge]), self.spacing)
        mobility.check_origin(self.origin)
        check_budget(np.array([self.settings.epsilon]), order=self.settings.order, delta=self.settings.delta)
        if self.interest < 1:
            raise InputError(f"Expected interest in at least 1 resource, got interest={self.interest}.")

    def path(self, kind: str, tile: Tile) -> Path:
        """Return where what is known of a tile is kept."""
        return self.folder / kind / f"{tile[0]}_{tile[1]}.parquet"

    def tiles_of(self, step: int, squares: IntArray) -> IntArray:
        """Return the tile (column, row) of each square (column, row) in a step."""
        tiles: IntArray = (squares - self.shift(step)) // self.block
        return tiles

    def shift(self, step: int) -> int:
        """Return by how many squares the tiles of a step are shifted."""
        return int(SHIFTS[step] * self.block)

    def city(self, places: FloatArray) -> City:
        """Return the domain of the resources at these places, in metres."""
        origin, likely = self.origin, PublicPlaces(places)
        return City(places, self.alpha, self.spacing, *self.middle, origin, likely)


class Chunk(NamedTuple):
    """Some rows of a Parquet file: of agents, or of resources."""

    path: Path
    first: int
    rows: int
    role: str


class Counted(NamedTuple):
    """What is counted of a chunk: squares (see `_keys_of`) and rows in each, the sum of places on the sphere, ids."""

    squares: IntArray
    counts: IntArray
    sphere: FloatArray
    are_numbers: bool
    is_limited: bool


class Piece(NamedTuple):
    """Rows of one tile in a file of dealt rows, whose ids have up to `width` bytes."""

    path: Path
    width: int
    first: int
    rows: int

    def read(self) -> NDArray[np.void]:
        """Return the rows: of very many files a few rows each, which plain records are quickest for."""
        kind = _record(self.path.name.startswith("agents"), self.width)
        return np.fromfile(self.path, kind, self.rows, offset=self.first * kind.itemsize)


def _record(of_agent: bool, width: int) -> np.dtype[np.void]:
    """Return the type of a dealt row."""
    fields = [("id", f"S{width}"), ("east", "f8"), ("north", "f8"), ("column", "i8"), ("row", "i8"), ("units", "i8")]
    return np.dtype([*fields, ("spot", "i8"), ("epsilon", "f8")] if of_agent else fields)


@dataclass(frozen=True, slots=True)
class PartitionedMatching:
    """What a partitioned matching came to: everything but `welfare`, which is None unless asked for, is public.

    Attributes
    ----------
    agents, resources, regions, tiles:
        How many there are; tiles of the first step.
    matched, filled:
        Agents with a resource, and units.
    guarantee:
        Under which it was found.
    files:
        The pairs `agent`, `resource`, in the order of public ids.
    welfare:
        The sum of true utilities.
    """

    agents: int
    resources: int
    regions: int
    tiles: int
    matched: int
    filled: int
    guarantee: Guarantee
    files: tuple[Path, ...]
    welfare: float | None


def match_partitioned(
    agents: Path,
    resources: Path,
    partition: Partition,
    executor: Executor,
    *,
    seed: int | None = None,
    score: bool = False,
    progress: Progress | None = None,
) -> PartitionedMatching:
    """Match the agents of files to the resources of files, tile by tile, and write the pairs into a folder.

    Parameters
    ----------
    agents, resources:
        A folder of Parquet files, or a Parquet or CSV file, with `id`, `lat`, `lon`, and `epsilon`, `demand` or
        `capacity`.
    partition:
        Folder, method and numbers; what follows from the files is filled in.
    executor:
        Whose workers share the folder. How many there are, and which of them die, changes nothing.
    seed:
        Repeats the agents' draws: a simulation.
    score:
        Whether true utilities are added up at the end, from positions.
    progress:
        Is called with (what, done, total).
    """
    folder, tell = make_folder(partition.folder), progress or (lambda *_: None)
    check_settings(folder, _settings_of(agents, resources, partition, seed))
    run = _Runner(executor, tell)
    published = (
        seed if seed is not None else int(write_once(folder / "public-draws", str(secrets.randbits(63)).encode()))
    )
    try:
        chunks = {
            role: _chunks(run, path, role, folder) for role, path in (("agents", agents), ("resources", resources))
        }
        partition, counts = _measured(run, replace(partition, published=published), chunks)
        dealt = {role: _dealt(run, partition, own) for role, own in chunks.items()}
        tiles = sorted(dealt["agents"])
        around = {tile: _around(dealt["resources"], tile) for tile in tiles}
        told = run(
            "reports", draw_tile, [(partition, tile, dealt["agents"][tile], around[tile], seed) for tile in tiles]
        )
        known = [sorted(set(tiles) | set(dealt["resources"]))]
        matched = [_match_all(run, partition, 0, [(tile, dealt["resources"].get(tile, [])) for tile in known[0]])]
        for step in range(1, len(SHIFTS)):
            over = _overlaps(partition, step, known[-1])
            matched.append(_match_all(run, partition, step, sorted(over.items())))
            known.append(sorted(over))
        files = _merged(run, partition, known, matched)
        welfare = None
        if score:
            scored = [(partition, tile, dealt["agents"][tile], dealt["resources"], known[1:]) for tile in tiles]
            welfare = float(sum(run("score", score_tile, scored)))
    finally:
        # Positions are kept no longer than they are needed.
        shutil.rmtree(folder / "do-not-publish", ignore_errors=True)
    for kind in ("dealt", *(f"step-{step}" for step in range(len(SHIFTS)))):
        shutil.rmtree(folder / kind, ignore_errors=True)
    types = [count for part in told for count in part.types]
    return PartitionedMatching(
        agents=int(counts[0]),
        resources=int(counts[1]),
        regions=len(types),
        tiles=len(tiles),
        matched=sum(one.agents for step in matched for one in step),
        filled=sum(one.units for step in matched for one in step),
        guarantee=_guarantee(partition, told, int(counts[0]), seed),
        files=files,
        welfare=welfare,
    )


def _guarantee(partition: Partition, told: Sequence[Told], agents: int, seed: int | None) -> Guarantee:
    if partition.method == "hungarian-region":
        return region_only("a centre knows each agent's region and takes it for the region's representative")
    types = [count for part in told for count in part.types]
    found = report_guarantee(max(part.epsilon for part in told), types)
    found = with_limits(found) if partition.is_limited else found
    found = found if seed is None else simulated(found)
    narrow = mobility.narrow_squares(np.array([partition.edge]), partition.spacing)
    return replace(found, warnings=(*narrow, *doubts(found, agents)))


class _Runner:
    """Runs calls on an executor, and tells how many are done."""

    def __init__(self, executor: Executor, tell: Progress) -> None:
        self.executor, self.tell = executor, tell

    def __call__(
        self,
        what: str,
        call: Callable[..., Any],
        arguments: Iterable[tuple[Any, ...]],
        keep: Callable[[Any], Any] = lambda result: result,
    ) -> list[Any]:
        """Return what `keep` leaves of the results of one call for each of some arguments, in their order."""
        place = {self.executor.submit(call, *given): number for number, given in enumerate(arguments)}
        left, total, results = set(place), len(place), [None] * len(place)
        self.tell(what, 0, total)
        try:
            while left:
                done, left = wait_for_any(left)
                for future in done:
                    results[place.pop(future)] = keep(future.result())
                self.tell(what, total - len(left), total)
        except (BrokenExecutor, CancelledError):
            raise PalmatchError(
                "A process that matched a tile, or the cluster, is gone (out of memory, perhaps); reports that were "
                "drawn are kept, and the same command goes on from there, with fewer workers if need be."
            ) from None
        finally:
            for future in left:
                future.cancel()
        return results


def _settings_of(agents: Path, resources: Path, partition: Partition, seed: int | None) -> dict[str, Any]:
    """Return what the reports depend on, for the same command to go on with them."""
    files = {
        f"{role} {number}": f"{file.name} of {file.stat().st_size} bytes at {file.stat().st_mtime_ns}"
        for role, path in (("agents", agents), ("resources", resources))
        for number, file in enumerate(_files(path))
    }
    numbers = {
        name: str(getattr(partition, name))
        for name in ("method", "interest", "edge", "alpha", "spacing", "origin", "capacity", "demand")
    }
    numbers["epsilon"] = str(partition.settings.epsilon)
    # With a file more or less, tiles lie elsewhere, and agents would report in theirs once more.
    numbers["number of files"] = str(len(files))
    return files | numbers | {"seed": "drawn secretly" if seed is None else seed}


def _files(path: Path) -> list[Path]:
    """Return the file, or the files of a folder by name."""
    found = sorted(file for file in path.iterdir() if file.suffix == ".parquet") if path.is_dir() else [path]
    if not found or not found[0].is_file():
        raise InputError(f"{path}: found no Parquet file; give a folder of them, or one Parquet or CSV file.")
    return found


def _chunks(run: _Runner, path: Path, role: str, folder: Path) -> list[Chunk]:
    """Return some rows of each file at a time; a CSV file is copied to Parquet, as text, without being held."""
    files = _files(path)
    if files[0].suffix != ".parquet":
        target = make_folder(folder / "do-not-publish", private=True) / f"{role}.parquet"
        run("reading", copy_csv, [(files[0], target)])
        files = [target]
    chunks = []
    for file in files:
        try:
            rows = pl.scan_parquet(file).select(pl.len()).collect().item()
        except (OSError, pl.exceptions.PolarsError) as error:
            raise InputError(f"{file}: cannot be read as Parquet ({type(error).__name__}).") from None
        chunks += [Chunk(file, first, min(CHUNK_ROWS, rows - first), role) for first in range(0, rows, CHUNK_ROWS)]
    if not chunks:
        raise InputError(f"{path}: there are no rows.")
    return chunks


def copy_csv(source: Path, target: Path) -> None:
    """Copy a CSV file to Parquet, every cell as text, a few rows at a time."""
    try:
        pl.scan_csv(source, infer_schema=False).sink_parquet(target)
    except pl.exceptions.PolarsError as error:
        raise InputError(f"{source}: cannot be read as CSV ({type(error).__name__}).") from None


def read_chunk(chunk: Chunk) -> Points:
    """Read and check some rows."""
    frame = pl.scan_parquet(chunk.path).slice(chunk.first, chunk.rows).collect()
    last = chunk.first + chunk.rows
    sheet = sheet_of(frame, f"{chunk.path} (rows {chunk.first + 1:,} to {last:,}, numbered from 0)")
    points = points_of(sheet, identifiers(sheet), role="agents" if chunk.role == "agents" else "resources")
    if points.edge is not None and not np.isnan(points.edge).all():
        raise InputError(
            f"{chunk.path}: agents bring squares of their own (column edge), and tiles are made of squares of one "
            "size: leave the column out, or match without --cluster and --memory."
        )
    return points


def count_chunk(chunk: Chunk, edge: float, origin: tuple[float, float]) -> Counted:
    """Count the rows of each public square."""
    points = read_chunk(chunk)
    squares = squares_of(points.latitude, points.longitude, edge, origin).astype(np.int64)
    found, counts = np.unique(_keys_of(squares), return_counts=True)
    north, east = np.radians(points.latitude), np.radians(points.longitude)
    sphere = np.array(
        [part.sum() for part in (np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north))]
    )
    numbers = bool(pl.Series(points.ids, dtype=pl.String).str.contains("^[0-9]{1,18}$").all())
    return Counted(found, counts, sphere, numbers, points.units is not None)


def _measured(run: _Runner, partition: Partition, chunks: dict[str, list[Chunk]]) -> tuple[Partition, tuple[int, int]]:
    """Return the partition with what follows from public counts, and how many agents and resources there are."""
    sums: list[tuple[IntArray, IntArray]] = []
    limited = partition.capacity is not None or partition.demand is not None
    numbers, sphere = [], np.zeros(3)
    for own in chunks.values():
        known = [np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)]

        def add(part: Counted, known: list[IntArray] = known) -> Counted:
            # Added up at once: of very many rows, the squares of each chunk together are far more than there are.
            known[:] = _summed(np.concatenate((known[0], part.squares)), np.concatenate((known[1], part.counts)))
            return part._replace(squares=known[0][:0], counts=known[1][:0])

        parts: list[Counted] = run(
            "squares", count_chunk, [(chunk, partition.edge, partition.origin) for chunk in own], add
        )
        sums.append((_squares_of_keys(known[0]), known[1]))
        numbers.append(all(part.are_numbers for part in parts))
        limited |= any(part.is_limited for part in parts)
        # Of the resources, which come last.
        sphere = np.sum([part.sphere for part in parts], axis=0)
    x, y, z = sphere
    # Where the lists of twice the interest reach, at the mean density of squares with resources.
    reach = sqrt(4 * partition.interest * len(sums[1][0]) / (2 * int(sums[1][1].sum())))
    partition = replace(
        partition,
        middle=(float(np.degrees(np.arctan2(z, np.hypot(x, y)))), float(np.degrees(np.arctan2(y, x)))),
        margin=max(ceil(reach), 2),
        are_numbers=(numbers[0], numbers[1]),
        is_limited=limited,
    )
    return replace(partition, block=_block(partition, sums)), (int(sums[0][1].sum()), int(sums[1][1].sum()))


def _block(partition: Partition, sums: Sequence[tuple[IntArray, IntArray]]) -> int:
    """Return the largest edge in squares, a multiple of 4, of which no tile has more than `TILE_AGENTS`."""
    smallest, most = 4 * partition.margin, TILE_AGENTS
    widest = max(int(np.ptp(squares, axis=0).max()) + 1 for squares, _ in sums)
    block = smallest
    while block < widest:
        block *= 2
    while True:
        fullest = max(_fullest(squares // block, counts) for squares, counts in sums)
        if fullest <= most:
            return block
        if block == smallest:
            raise InputError(
                f"A tile of {block} × {block} squares has {fullest:,} agents or resources, more than the {most:,} that "
                "one process matches: choose a smaller --edge, or a smaller --interest."
            )
        block = max((7 * block // 8) // 4 * 4, smallest)


def _fullest(tiles: IntArray, counts: IntArray) -> int:
    return int(_summed(_keys_of(tiles), counts)[1].max())


def _summed(keys: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    """Return different keys in ascending order, and the sum of the counts of each."""
    different, which = np.unique(keys, return_inverse=True)
    return different, np.bincount(which, counts, len(different)).astype(np.int64)


def _keys_of(squares: IntArray) -> IntArray:
    """Return a number for each square or tile (column, row), in their order: pairs take ten times as long to sort."""
    keys: IntArray = (squares[:, 0] << 32) + squares[:, 1]
    return keys


def _squares_of_keys(keys: IntArray) -> IntArray:
    """Return the squares (column, row) of keys."""
    rows = ((keys + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)
    return np.column_stack(((keys - rows) >> 32, rows))


def _dealt(run: _Runner, partition: Partition, chunks: Sequence[Chunk]) -> dict[Tile, list[Piece]]:
    """Deal all rows to the tiles of the first step; return where those of each tile are."""
    role = chunks[0].role
    # Positions of agents are private, those of resources public.
    private = role == "agents"
    folder = make_folder(partition.folder / ("do-not-publish" if private else "dealt"), private=private)
    names = [folder / f"{role}-{number:05}.rows" for number in range(len(chunks))]
    found: dict[Tile, list[Piece]] = {}
    dealt = run("dealing", deal_chunk, [(partition, *one) for one in zip(chunks, names, strict=True)])
    for index in dealt:
        for tile, piece in index:
            found.setdefault(tile, []).append(piece)
    widths = [index[0][1].width for index in dealt]
    files = [Piece(name, width, 0, one.rows) for name, width, one in zip(names, widths, chunks, strict=True)]
    total = sum(chunk.rows for chunk in chunks)
    parts = -(-total // _KEYS_AT_ONCE)
    for doubt in run("ids", check_keys, [(files, part, parts) for part in range(parts)]):
        if doubt is not None:
            raise InputError(doubt)
    return found


def deal_chunk(partition: Partition, chunk: Chunk, target: Path) -> list[tuple[Tile, Piece]]:
    """Write rows tile by tile, and their keys; return where the rows of each tile are."""
    points = read_chunk(chunk)
    squares = squares_of(points.latitude, points.longitude, partition.edge, partition.origin)
    whole = squares.astype(np.int64)
    tiles = _keys_of(partition.tiles_of(0, whole))
    order = np.argsort(tiles, kind="stable")
    ids = np.array(pl.Series(points.ids, dtype=pl.String).cast(pl.Binary).to_list())
    if (np.char.str_len(ids) < pl.Series(points.ids).str.len_bytes().to_numpy()).any():
        raise InputError(f"{points.source}: found an id that ends with a NUL character, expected text; rename it.")
    rows = np.empty(len(ids), dtype=_record(chunk.role == "agents", ids.dtype.itemsize))
    rows["id"], rows["column"], rows["row"] = ids[order], *whole[order].T
    rows["east"], rows["north"] = metres_of(points, *partition.middle)[order].T
    given = given_or(points.units, partition.demand if chunk.role == "agents" else partition.capacity)
    units = np.ones(len(ids)) if given is None else np.broadcast_to(np.asarray(given, dtype=float), len(ids))
    rows["units"] = np.where(np.isnan(units), 1.0, units)[order]
    if chunk.role == "agents":
        edges, grid = np.full(len(ids), partition.edge), (partition.spacing, partition.origin)
        rows["spot"] = spots_of(points.latitude, points.longitude, squares, edges, *grid)[order]
        rows["epsilon"] = np.nan if points.epsilon is None else points.epsilon[order]
    write_atomic(target, rows.tobytes(), private=True)
    write_atomic(target.with_suffix(".keys"), np.sort(keys_of(points.ids)).tobytes())
    different, firsts, sizes = np.unique(tiles[order], return_index=True, return_counts=True)
    index = zip(_squares_of_keys(different).tolist(), firsts.tolist(), sizes.tolist(), strict=True)
    return [((tile[0], tile[1]), Piece(target, ids.dtype.itemsize, first, size)) for tile, first, size in index]


def check_keys(files: Sequence[Piece], part: int, parts: int) -> str | None:
    """Say which two ids have one key, among the keys of one part of all numbers: their draws would be the same."""
    low, high = (np.uint64(min((number << 64) // parts, 2**64 - 1)) for number in (part, part + 1))
    found = []
    for file in files:
        keys = np.memmap(file.path.with_suffix(".keys"), np.uint64, "r")
        last = len(keys) if part + 1 == parts else np.searchsorted(keys, high)
        found.append(np.array(keys[np.searchsorted(keys, low) : last]))
    ordered = np.sort(np.concatenate(found))
    again = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(again):
        return None
    names: list[str] = []
    for file in files:
        ids = _texts(file.read()["id"]).to_list()
        names += [ids[row] for row in np.flatnonzero(keys_of(ids) == again[0]).tolist()]
    kind = files[0].path.name.partition("s-")[0]
    if names[0] == names[1]:
        return f"The {kind} id {names[0]!r} occurs twice: give every {kind} an id of its own."
    return f"The ids {names[0]!r} and {names[1]!r} have the same hash and would share draws: rename one of them."


def _around(dealt: dict[Tile, list[Piece]], tile: Tile) -> list[Piece]:
    """Return the pieces of a tile and of the eight around it."""
    near = ((tile[0] + east, tile[1] + north) for east in (-1, 0, 1) for north in (-1, 0, 1))
    return [piece for one in near for piece in dealt.get(one, [])]


def _read_pieces(pieces: Sequence[Piece]) -> pl.DataFrame:
    widest = max(pieces, key=lambda one: one.width)
    # Ids of all files as wide as those of the widest.
    rows = np.concatenate([widest.read()[:0], *(one.read() for one in pieces)])
    return pl.DataFrame(
        {name: _texts(rows[name]) if name == "id" else rows[name].copy() for name in rows.dtype.names or ()}
    )


def _texts(ids: NDArray[Any]) -> pl.Series:
    return pl.Series("id", ids.tolist(), dtype=pl.Binary).cast(pl.String)


def _by_id(partition: Partition, rows: pl.DataFrame, role: str) -> pl.DataFrame:
    """Return rows in the order of public ids: no order tells where an agent is."""
    return rows.sort(_order(partition, "id", role))


def _order(partition: Partition, column: str, role: str) -> pl.Expr:
    """Return what a column of ids is ordered by: numbers as numbers, words by their bytes."""
    name = pl.col(column)
    return name.cast(pl.Int64) if partition.are_numbers[role == "resources"] else name


def _inside(squares: FloatArray | IntArray, low: IntArray, high: IntArray) -> NDArray[np.bool_]:
    """Tell which squares (column, row) are from `low` on and below `high`."""
    inside: NDArray[np.bool_] = np.all((squares >= low) & (squares < high), axis=1)
    return inside


def _squares(rows: pl.DataFrame) -> IntArray:
    return rows.select("column", "row").to_numpy().astype(np.int64)


class Told(NamedTuple):
    """What is public of a tile's channels: the largest ε of a report that tells something, types of each region."""

    epsilon: float
    types: list[int]


def draw_tile(partition: Partition, tile: Tile, own: Sequence[Piece], near: Sequence[Piece], seed: int | None) -> Told:
    """Choose the channels of a tile's regions, draw one report for each of its agents, and write both down.

    The file of reports is given its name once, whole and on the disk; a task that finds it, or comes second, draws
    nothing that is ever used.
    """
    reports, channels = partition.path("reports", tile), partition.path("channels", tile)
    if reports.exists():
        return _told(channels)
    make_folder(reports.parent)
    make_folder(channels.parent)
    agents, resources = _by_id(partition, _read_pieces(own), "agents"), _read_resources(partition, tile, near)
    problem = _problem(partition, agents, resources, agents.select("east", "north", "spot").to_numpy())
    workspace = Workspace(problem)
    budget = budgets(problem, partition.settings)
    regions, priors = regions_and_priors(workspace)
    populations, channel_of = populations_of(problem, regions, priors, budget)
    found = _choose(partition, populations)
    owners = tuple(one.region for one in populations)
    plan = ReportPlan(tuple(found), owners, channel_of, cells_of(problem, found, owners, channel_of), np.zeros(0))
    public = agents.select("id", "column", "row", "epsilon", "units").with_columns(
        channel=channel_of, report=draw_reports(plan, workspace.randomness(seed))
    )
    write_atomic(channels, _packed(_channel_rows(populations, found)))
    write_once(reports, _packed(public))
    return _told(channels)


def _choose(partition: Partition, populations: Sequence[Population]) -> list[Channel]:
    """Return the channels of one report: randomised response, or nothing where regions are all that is told."""
    if partition.method != "hungarian-region":
        return response_channels(populations)
    return [constant_channel(one.region, prior=_representative(one)) for one in populations]


def _representative(one: Population) -> FloatArray:
    """Return the prior of agents that count as their region's representative."""
    prior: FloatArray = (np.arange(len(one.prior)) == one.region.representative).astype(np.float64)
    return prior


def _channel_rows(populations: Sequence[Population], channels: Sequence[Channel]) -> pl.DataFrame:
    """Return what is public of each channel, a row each; its values follow from the resources of a tile."""
    squares = [mobility.Square(*one.region.region) for one in populations]  # type: ignore[misc]
    types = len(populations[0].prior)
    return pl.DataFrame(
        {
            "column": [square.column for square in squares],
            "row": [square.row for square in squares],
            "epsilon": [one.epsilon for one in populations],
            "cells": [channel.cells for channel in channels],
            "chances": [channel.chances.ravel().tolist() for channel in channels],
            "cell_of": pl.Series([channel.cell_of for channel in channels], dtype=pl.Array(pl.Int64, types)),
            "prior": pl.Series([one.prior for one in populations], dtype=pl.Array(pl.Float64, types)),
        }
    )


def _told(channels: Path) -> Told:
    rows = pl.read_parquet(channels)
    tells = rows.filter(pl.col("chances").list.len() > pl.col("cells"))
    regions = rows.select("column", "row").unique().height
    types = rows.schema["prior"].shape[0]  # type: ignore[attr-defined]
    return Told(float(tells["epsilon"].max() or 0.0), [types] * regions)  # type: ignore[arg-type]


def _read_resources(partition: Partition, tile: Tile, near: Sequence[Piece]) -> pl.DataFrame:
    """Return the resources in a tile and next to its border."""
    low = np.array(tile) * partition.block
    rows = _read_pieces(near)
    near_enough = _inside(_squares(rows), low - partition.margin, low + partition.block + partition.margin)
    # Of a tile far from all resources, the resources that there are.
    return _by_id(partition, rows.filter(pl.Series(near_enough)) if near_enough.any() else rows, "resources")


def _problem(
    partition: Partition,
    agents: pl.DataFrame,
    resources: pl.DataFrame,
    places: FloatArray,
    conflicts: Iterable[tuple[str, str]] = (),
) -> Problem:
    """Return the problem of some rows; `places` has an agent's metres to the east and north, and its grid point."""
    squares = agents.select("column", "row").to_numpy()
    edges, city = np.full(len(agents), partition.edge), partition.city(resources.select("east", "north").to_numpy())
    return make_problem(
        city,
        np.column_stack((places[:, :2], edges, squares, places[:, 2])),
        agent_ids=DistinctIds(agents["id"].to_list()),
        resource_ids=DistinctIds(resources["id"].to_list()),
        epsilon=agents["epsilon"].to_numpy() if "epsilon" in agents.columns else None,
        interest=partition.interest,
        warnings=(),
        check=False,
        capacity=resources["units"].to_numpy(),
        demand=agents["units"].to_numpy(),
        conflicts=conflicts,
    )


class Matched(NamedTuple):
    """What a step found in a tile: units, agents that had none before, and some ids of its rows, in order."""

    units: int
    agents: int
    rows: int
    sample: list[str]


def _match_all(run: _Runner, partition: Partition, step: int, tiles: Sequence[tuple[Tile, Any]]) -> list[Matched]:
    what = f"tiles, step {step + 1} of {len(SHIFTS)}"
    found: list[Matched] = run(what, match_tile, [(partition, step, tile, sources) for tile, sources in tiles])
    return found


def _overlaps(partition: Partition, step: int, tiles: Sequence[Tile]) -> dict[Tile, list[Tile]]:
    """Return the tiles of a step, each with those of the step before that it overlaps."""
    found: dict[Tile, list[Tile]] = {}
    last, before = partition.block - 1, partition.shift(step - 1)
    for tile in tiles:
        low = np.array(tile) * partition.block + before
        corners = partition.tiles_of(step, np.array([[low[0] + x, low[1] + y] for x in (0, last) for y in (0, last)]))
        for other in {(int(column), int(row)) for column, row in corners}:
            found.setdefault(other, []).append(tile)
    return found


def match_tile(partition: Partition, step: int, tile: Tile, sources: Sequence[Any]) -> Matched:
    """Match what is left in a tile, by reports, squares and resources alone; write pairs, and what is left then.

    `sources` are pieces of dealt resources in the first step, and tiles of the step before in each other one. Pairs
    near the border are not settled but in the last step: who is across it may want the same.
    """
    kind = f"step-{step}"
    path = partition.path(f"{kind}/pairs", tile)
    if path.exists():
        return _summary(path)
    for part in ("pairs", "agents", "resources", "taken"):
        make_folder(partition.path(f"{kind}/{part}", tile).parent)
    agents, resources, taken = _left(partition, step, tile, sources)
    agents, resources = _by_id(partition, agents, "agents"), _by_id(partition, resources, "resources")
    units = np.empty((0, 2), dtype=np.int64)
    wanting = np.flatnonzero(agents["units"].to_numpy() > 0)
    offered = np.flatnonzero(resources["units"].to_numpy() > 0)
    if len(wanting) and len(offered):
        found = _match(partition, agents[wanting], resources[offered], taken)
        units = np.column_stack((wanting[found[:, 0]], offered[found[:, 1]]))
    if step + 1 < len(SHIFTS):
        low = np.array(tile) * partition.block + partition.shift(step)
        bounds = low + partition.margin, low + partition.block - partition.margin
        settled = [_inside(_squares(rows), *bounds) for rows in (agents, resources)]
        units = units[settled[0][units[:, 0]] & settled[1][units[:, 1]]]
    got, gone = (np.bincount(units[:, side], minlength=len(rows)) for side, rows in enumerate((agents, resources)))
    pairs = pl.DataFrame({"agent": agents["id"][units[:, 0]], "resource": resources["id"][units[:, 1]]})
    # Of an agent that had nothing before, one unit tells so.
    newly = ~agents["served"].to_numpy()[units[:, 0]]
    newly &= np.isin(np.arange(len(units)), np.unique(units[:, 0], return_index=True)[1])
    pairs = pairs.with_columns(newly=newly)
    agents = agents.with_columns(units=pl.col("units") - got, served=pl.col("served") | pl.Series(got > 0))
    resources = resources.with_columns(units=pl.col("units") - gone)
    if step + 1 == len(SHIFTS):
        without = agents.filter(~pl.col("served"))
        nothing = pl.DataFrame({"agent": without["id"]})
        nothing = nothing.with_columns(resource=pl.lit(None, pl.String), newly=pl.lit(value=False))
        pairs = pl.concat([pairs, nothing])
    agents = agents.filter((pl.col("units") > 0) | ~pl.col("served"))
    resources = resources.filter(pl.col("units") > 0)
    # A pair that was settled is not matched again, as long as both could be.
    taken = pl.concat([taken, pairs.drop("newly")]).join(agents, left_on="agent", right_on="id", how="semi")
    taken = taken.join(resources, left_on="resource", right_on="id", how="semi").sort("agent", "resource")
    pairs = pairs.sort(_order(partition, "agent", "agents"), _order(partition, "resource", "resources"))
    for part, rows in (("agents", agents), ("resources", resources), ("taken", taken)):
        write_atomic(partition.path(f"{kind}/{part}", tile), _packed(rows))
    write_atomic(path, _packed(pairs))
    return _summary(path)


def _summary(path: Path) -> Matched:
    rows = pl.read_parquet(path)
    places = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), _SAMPLE)).astype(int))
    units = len(rows) - rows["resource"].null_count()
    return Matched(units, int(rows["newly"].sum()), len(rows), rows["agent"][places].to_list())


def _left(
    partition: Partition, step: int, tile: Tile, sources: Sequence[Any]
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Return the agents and resources that are left in a tile, and the pairs among them that were settled."""
    none = pl.DataFrame(schema={"agent": pl.String, "resource": pl.String})
    if step == 0:
        reports = partition.path("reports", tile)
        agents = pl.read_parquet(reports) if reports.exists() else _NO_AGENTS
        resources = _read_pieces(sources) if sources else _NO_RESOURCES
        return agents.with_columns(served=pl.lit(value=False)), resources, none
    low = np.array(tile) * partition.block + partition.shift(step)
    found = []
    for part in ("agents", "resources"):
        rows = pl.concat([pl.read_parquet(partition.path(f"step-{step - 1}/{part}", source)) for source in sources])
        found.append(rows.filter(pl.Series(_inside(_squares(rows), low, low + partition.block))))
    taken = pl.concat([pl.read_parquet(partition.path(f"step-{step - 1}/taken", source)) for source in sources])
    return found[0], found[1], taken


_NO_AGENTS = pl.DataFrame(
    schema={"id": pl.String, "column": pl.Int64, "row": pl.Int64, "epsilon": pl.Float64}
    | dict.fromkeys(("units", "channel", "report"), pl.Int64)
)
_NO_RESOURCES = pl.DataFrame(
    schema={"id": pl.String, "east": pl.Float64, "north": pl.Float64}
    | dict.fromkeys(("column", "row", "units"), pl.Int64)
)


def _match(partition: Partition, agents: pl.DataFrame, resources: pl.DataFrame, taken: pl.DataFrame) -> IntArray:
    """Return units (agent, resource): where an agent is in its square is not known here, only its report."""
    present = taken.join(agents, left_on="agent", right_on="id", how="semi")
    present = present.join(resources, left_on="resource", right_on="id", how="semi")
    problem = _problem(partition, agents, resources, np.zeros((len(agents), 3)), present.iter_rows())
    workspace = Workspace(problem)
    known, channel_of = _known_channels(partition, agents)
    views = {region: workspace.regions[number] for number, region in enumerate(problem.regions)}
    populations, channels = [], []
    wanted = np.bincount(channel_of, weights=problem.demand, minlength=len(known)).astype(np.int64)
    for (column, row, epsilon, cells, chances, cell_of, prior), units in zip(known, wanted.tolist(), strict=True):
        region = views[mobility.Square(partition.edge, column, row)]
        one = Population(region, epsilon, units, prior)
        prior = _representative(one) if partition.method == "hungarian-region" else prior
        channels.append(make_channel(region, cell_of, np.array(chances).reshape(cells, -1), prior=prior))
        populations.append(one)
    priors = {one.region.region: one.prior for one in populations}
    opening = reserve_prices(problem, workspace.regions, [priors[region] for region in problem.regions], workspace.keys)
    plan = plan_bids(workspace, partition.settings, populations, channels, channel_of, opening)
    public = streams(partition.published, workspace.keys)
    # Nothing private is left to draw from.
    chance = Randomness(public, public, public, partition.published, simulated=False)
    ended = MATCHERS[partition.method](workspace, plan, agents["report"].to_numpy(), chance, False)
    mobility.forget_corners()
    if ended.resource_of.ndim == 2:
        return ended.resource_of
    matched = np.flatnonzero(ended.resource_of >= 0)
    return np.column_stack((matched, ended.resource_of[matched]))


def _known_channels(partition: Partition, agents: pl.DataFrame) -> tuple[list[Any], IntArray]:
    """Return the rows of the channels that some agents drew from, and which of them each agent has."""
    tiles = partition.tiles_of(0, _squares(agents))
    drawn = np.column_stack((tiles, agents["channel"].to_numpy()))
    different, channel_of = np.unique(drawn, axis=0, return_inverse=True)
    rows: list[Any] = []
    for tile in np.unique(different[:, :2], axis=0).tolist():
        stored = pl.read_parquet(partition.path("channels", tuple(tile)))
        here = stored[different[(different[:, :2] == tile).all(axis=1), 2]]
        names = ("column", "row", "epsilon", "cells", "chances")
        tables = here["cell_of"].to_numpy(), here["prior"].to_numpy()
        rows += zip(*(here[name].to_list() for name in names), *tables, strict=True)
    return rows, channel_of.ravel()


def _merged(
    run: _Runner, partition: Partition, known: Sequence[Sequence[Tile]], matched: Sequence[Sequence[Matched]]
) -> tuple[Path, ...]:
    """Write all pairs in the order of public ids, and return the files."""
    sample = [(name, one.rows / len(one.sample)) for step in matched for one in step for name in one.sample]
    sample.sort(key=(lambda one: int(one[0])) if partition.are_numbers[0] else (lambda one: one[0].encode()))
    before = np.cumsum([weight for _, weight in sample])
    parts = max(round(before[-1] / _PART_ROWS), 1)
    cuts = [sample[int(np.searchsorted(before, before[-1] * part / parts))][0] for part in range(1, parts)]
    # Different ids only: where one agent has very many units a part may be larger.
    bounds = [None, *dict.fromkeys(cuts), None]
    files = [partition.path(f"step-{step}/pairs", tile) for step, tiles in enumerate(known) for tile in tiles]
    names = [partition.folder / f"pairs-{number:05}.parquet" for number in range(len(bounds) - 1)]
    run("output", merge_part, [(partition, files, *one) for one in zip(bounds[:-1], bounds[1:], names, strict=True)])
    return tuple(names)


def merge_part(partition: Partition, files: Sequence[Path], low: str | None, high: str | None, target: Path) -> None:
    """Write the pairs of the agents from `low` on and before `high`, by public id."""
    order = _order(partition, "agent", "agents")
    rows = pl.concat([pl.scan_parquet(file).select("agent", "resource") for file in files])
    numbers = partition.are_numbers[0]
    if low is not None:
        rows = rows.filter(order >= (int(low) if numbers else low))
    if high is not None:
        rows = rows.filter(order < (int(high) if numbers else high))
    found = rows.collect(engine="streaming").sort(order, _order(partition, "resource", "resources"))
    write_atomic(target, _packed(found))


def score_tile(
    partition: Partition,
    tile: Tile,
    own: Sequence[Piece],
    dealt: dict[Tile, list[Piece]],
    known: Sequence[Sequence[Tile]],
) -> float:
    """Return the sum of true utilities of a tile's agents, from their positions: where that was asked for."""
    # The tiles of all steps that hold an agent of this one reach no farther than the tiles around it.
    agents, resources = _read_pieces(own), _read_pieces(_around(dealt, tile))
    low, last = np.array(tile) * partition.block, partition.block - 1
    corners = np.array([[low[0] + x, low[1] + y] for x in (0, last) for y in (0, last)])
    files = [partition.path("step-0/pairs", tile)]
    for step, tiles in enumerate(known, start=1):
        over = {(int(column), int(row)) for column, row in partition.tiles_of(step, corners)}
        files += [partition.path(f"step-{step}/pairs", one) for one in sorted(over & set(tiles))]
    pairs = pl.concat([pl.read_parquet(file, columns=["agent", "resource"]) for file in files])
    both = pairs.join(agents, left_on="agent", right_on="id").join(
        resources.select("id", at_east="east", at_north="north"), left_on="resource", right_on="id"
    )
    places = both.select("at_east", "at_north").to_numpy()
    return float(
        utility_of_pairs(both.select("east", "north").to_numpy(), places, np.arange(len(places)), partition.alpha).sum()
    )


def _packed(rows: pl.DataFrame) -> bytes:
    packed = io.BytesIO()
    rows.write_parquet(packed, compression="zstd")
    return packed.getvalue()
