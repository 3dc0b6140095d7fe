"""Reviewers and papers: utility is the similarity of areas, and a reviewer's primary area is all that is public.

Each reviewer and each paper has a set of subject areas, one of them primary. The primary one counts 1, the others 0.5,
the rest 0.1, and utility is the cosine of two such vectors. A region is a primary area;
its possible agents are all sets of at most `secondary` further areas; the bare
primary area represents it (Sec. "Test-Case 2" of the paper).

References
----------
- [Danassis, Triastcyn, Faltings (AAMAS 2022)][], Sec. "Test-Case 2: Paper Assignment" and its appendix.
- Page "Domains", [Domains of the package][].
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from palmatch.data.conference import Conference as SyntheticConference
from palmatch.data.files import (
    FilePath,
    Sheet,
    complaint,
    epsilons,
    find_column,
    identifiers,
    identifiers_or_numbers,
    is_frame,
    library_of,
    listed,
    marks,
    read_sheet,
    sheet_of,
    texts,
    unit_counts,
)
from palmatch.device.distribution import GRID
from palmatch.domain import of_kind
from palmatch.errors import InputError
from palmatch.guarantee import Disclosure
from palmatch.problem import FloatArray, IntArray, Problem, Region, for_all_agents, given_or, make_problem, single_type


@dataclass(frozen=True, slots=True)
class Labels:
    """The areas that each row has marked.

    Attributes
    ----------
    source
        The file they come from.
    ids
        N ids, each once.
    areas
        A names of areas, each once.
    marks
        1 where a row has the area, shape (N, A); every row has at least one.
    epsilon
        Each agent's privacy budget, possibly infinite, NaN for the default; None if no agent asks for one.
    primary
        The position in `areas` of each row's primary area, one of its own, shape (N,); None if the file has
        none.
    units
        How many resources each agent wants, or how many agents each resource takes; NaN for the default; None if no
        column says so.
    """

    source: str
    ids: tuple[str, ...]
    areas: tuple[str, ...]
    marks: NDArray[np.uint8]
    epsilon: NDArray[np.float64] | None
    primary: NDArray[np.int64] | None
    units: NDArray[np.float64] | None = None


def read_labels(path: FilePath, *, role: Literal["agents", "resources"]) -> Labels:
    """Read `id`, the optional `primary`, and an area from every column without a meaning of its own.

    Agents may have `epsilon` and `demand`, resources `capacity`.

    A column `epsilon` in a file of resources is passed over, since resources have no privacy budget.
    """
    sheet = read_sheet(path)
    return labels_of(sheet, identifiers(sheet), role=role)


def labels_of(sheet: Sheet, ids: tuple[str, ...], *, role: Literal["agents", "resources"]) -> Labels:
    """Check the columns of a file or frame and return the labels."""
    budget = find_column(sheet, "epsilon")
    first = find_column(sheet, "primary")
    limit = "demand" if role == "agents" else "capacity"
    reserved = {find_column(sheet, "id"), budget, first, find_column(sheet, limit)}
    columns = [position for position in range(len(sheet.names)) if position not in reserved]
    areas = _area_names(sheet, columns)
    marked = np.stack([marks(sheet, column) for column in columns], axis=1)
    _check_somewhere(sheet, ids, marked)
    return Labels(
        source=sheet.source,
        ids=ids,
        areas=areas,
        marks=marked,
        epsilon=epsilons(sheet, budget) if role == "agents" else None,
        primary=_marked_primaries(sheet, first, areas=areas, marked=marked),
        units=unit_counts(sheet, limit),
    )


def labels_of_conference(made_up: SyntheticConference) -> tuple[Labels, Labels]:
    """Return the reviewers and papers of a synthetic conference, without ids and primary areas."""
    source = "the synthetic conference"
    reviewers, papers = (
        Labels(source, (), made_up.areas, marks, None, None) for marks in (made_up.reviewers, made_up.papers)
    )
    return reviewers, papers


def need_primary(labels: Labels) -> None:
    """Refuse labels without primary areas, in a sentence that says how to add them."""
    if labels.primary is None:
        raise InputError(
            f"{labels.source}: found no column 'primary', expected each row's primary area, which is public; add the "
            "column with the name of one of the row's own areas, or draw it with --draw-primary (draw_primary=True), "
            "which adds ln k to ε where there are k areas."
        )


def _area_names(sheet: Sheet, columns: list[int]) -> tuple[str, ...]:
    if not columns:
        raise InputError(
            f"{sheet.heading}: found no area among the columns, expected one 0/1 column an area; add them."
        )
    seen: set[str] = set()
    for column in columns:
        name = sheet.names[column]
        if not name:
            raise InputError(f"{sheet.heading}: column {column + 1} has no name, expected an area; name or remove it.")
        if name.casefold() in seen:
            raise InputError(f"{sheet.heading}: found the area {name!r} twice, expected each once; rename one column.")
        seen.add(name.casefold())
    return tuple(sheet.names[column] for column in columns)


def _check_somewhere(sheet: Sheet, ids: tuple[str, ...], marked: NDArray[np.uint8]) -> None:
    bare = np.flatnonzero(~marked.any(axis=1))
    if bare.size:
        row = int(bare[0])
        others = f" (and {bare.size - 1} more like it)" if bare.size > 1 else ""
        raise InputError(
            f"{sheet.source}, {sheet.place(row)}: {ids[row]!r} has no area{others}, so it belongs to no "
            "region; mark at least one area with 1 or remove the row."
        )


def _marked_primaries(
    sheet: Sheet, column: int | None, *, areas: tuple[str, ...], marked: NDArray[np.uint8]
) -> NDArray[np.int64] | None:
    if column is None:
        return None
    position = {area.casefold(): index for index, area in enumerate(areas)}
    named = texts(sheet, column).to_list()
    primary = np.array([position.get(name.casefold(), -1) for name in named], dtype=np.int64)
    own = (primary >= 0) & (marked[np.arange(len(primary)), primary] == 1)
    if not own.all():
        row = int(np.flatnonzero(~own)[0])
        raise complaint(
            sheet,
            column,
            row=row,
            more=int((~own).sum()) - 1,
            expected="one of the row's own areas",
            advice="name one of these or mark the area",
            public=True,
        )
    return primary


def check_same_areas(agents: Labels, resources: Labels) -> Labels:
    """Return the resources with areas in the agents' order and spelling, or name those that differ."""
    there = {area.casefold(): index for index, area in enumerate(resources.areas)}
    here = {area.casefold() for area in agents.areas}
    missing = [area for area in agents.areas if area.casefold() not in there]
    extra = [area for area in resources.areas if area.casefold() not in here]
    if missing or extra:
        parts = [f"lacks {listed(missing)}"] * bool(missing) + [f"has {listed(extra)} besides"] * bool(extra)
        raise InputError(
            f"{resources.source} {' and '.join(parts)}, expected the same areas as in {agents.source}; "
            "give both files the same area columns."
        )
    order = np.array([there[area.casefold()] for area in agents.areas], dtype=np.int64)
    primary = None if resources.primary is None else np.argsort(order)[resources.primary].astype(np.int64)
    return replace(resources, areas=agents.areas, marks=resources.marks[:, order], primary=primary)


PRIMARY, SECONDARY, OTHER = 1.0, 0.5, 0.1

# 25 areas with 4 further ones make 12,951 types; beyond this the tables no longer fit a common machine.
_MOST_TYPES = 2_000_000


Marks: TypeAlias = Labels | ArrayLike | Any


class Area(NamedTuple):
    """A region: all reviewers whose primary area this is."""

    number: int
    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Conference:
    """The papers domain. A type is a vector with 1 for the primary area, 0.5 for secondary ones, 0.1 elsewhere."""

    papers: FloatArray
    areas: tuple[str, ...]
    secondary: int

    def utility(self, types: FloatArray, columns: IntArray | None = None) -> FloatArray:
        """Return the cosine of each type's vector and each paper's."""
        # einsum, not a BLAS product: its sums do not depend on the number of threads or of rows, where rows lie side by
        # side in memory (those of a file are columns at first).
        papers = np.ascontiguousarray(self.papers if columns is None else self.papers[columns])
        cosine = np.einsum("ta,pa->tp", np.ascontiguousarray(types), papers)
        cosine /= np.linalg.norm(types, axis=1)[:, None]
        cosine /= np.linalg.norm(papers, axis=1)[None, :]
        return np.asarray(np.minimum(cosine, 1.0))

    def region_of(self, types: FloatArray) -> Sequence[Region]:
        """Return each type's primary area."""
        return [Area(int(number), self.areas[number]) for number in types.argmax(axis=1)]

    def types_of(self, region: Region) -> FloatArray:
        """Return every label set with this primary area and at most `secondary` further ones, the bare one first."""
        primary = of_kind(region, Area).number
        others = [number for number in range(len(self.areas)) if number != primary]
        extras = [chosen for size in range(self.secondary + 1) for chosen in combinations(others, size)]
        types = np.full((len(extras), len(self.areas)), OTHER)
        types[:, primary] = PRIMARY
        for row, chosen in enumerate(extras):
            types[row, list(chosen)] = SECONDARY
        return types

    def representative(self, region: Region) -> int:
        """Return the row of the bare primary area."""
        of_kind(region, Area)
        return 0


def problem(
    reviewers: Marks,
    papers: Marks,
    *,
    areas: int = 3,
    draw_primary: bool = False,
    seed: int | None = None,
    surplus: Literal["drop", "keep"] = "drop",
    interest: int | None = None,
    epsilon: ArrayLike | None = None,
    area_names: Sequence[str] | None = None,
    reviewer_ids: Sequence[str] | None = None,
    paper_ids: Sequence[str] | None = None,
    reviewer_primary: ArrayLike | None = None,
    paper_primary: ArrayLike | None = None,
    capacity: ArrayLike | None = None,
    demand: ArrayLike | None = None,
    conflicts: Iterable[tuple[str, str]] | None = None,
) -> Problem:
    """Return the problem of matching reviewers to papers.

    Parameters
    ----------
    reviewers, papers:
        0/1 marks, one row each, one column for each area; or frames of polars, pandas or Arrow with these columns,
        named by their areas (and `id`, `primary`; reviewers also `epsilon`), or what `read_labels`
        returns.
    areas:
        The most areas, the primary one included, of a possible reviewer: `--areas` of the command.
    draw_primary:
        Whether primary areas that are not given are drawn uniformly from each row's own areas. The primary area of a
        reviewer is public, so such a draw discloses something about the other areas: ln k is added to every ε, with k
        the number of areas that there are, which is the most that a reviewer may have.
    seed:
        Repeats what is drawn here, for tests and studies; without one randomness is fresh and kept nowhere.
    surplus:
        What becomes of a reviewer who has more than `areas` areas. "drop": the reviewer acts on `areas` of them, drawn
        at random, so that the region covers every reviewer (welfare is scored with all of them). "keep": the reviewer
        acts on all of them, and is named in `Problem.uncovered`: methods that act as the nearest possible type cover
        it, others do not.
    interest:
        How many resources each possible type considers; all of them unless given.
    epsilon:
        Each agent's own budget, a public choice; NaN where the agent leaves it to the caller.
    area_names:
        Names of the areas, in the order of the columns.
    reviewer_ids, paper_ids:
        Public names; those of the frames, or row numbers, unless given.
    reviewer_primary, paper_primary:
        The column of each row's primary area, one of its own.
    capacity, demand:
        How many reviewers a paper takes and how many papers a reviewer, for all or for each, where columns `capacity`
        and `demand` say nothing; 1 unless given.
    conflicts:
        Pairs (reviewer id, paper id) that must not be matched: public.

    Returns
    -------
    Problem
        What every method takes.

    Examples
    --------
    >>> import palmatch as pm
    >>> meeting = pm.papers.problem([[1, 1, 0]], [[0, 1, 1]], reviewer_primary=[1], paper_primary=[2])
    >>> [str(region) for region in meeting.regions]
    ['area 2']

    References
    ----------
    - [Danassis, Triastcyn, Faltings (AAMAS 2022)][], Sec. "Test-Case 2: Paper Assignment" and its appendix.
    - [Karimzadehgan, Zhai, Belford (CIKM 2008)][]: reviewers and papers by areas.
    """
    own = _as_labels(reviewers, "reviewers", "agents", area_names, reviewer_ids, reviewer_primary)
    other = _as_labels(papers, "papers", "resources", area_names, paper_ids, paper_primary)
    if area_names is None and own.areas and other.areas:
        other = check_same_areas(own, other)
    marks, paper_marks = own.marks, other.marks
    if marks.shape[1] != paper_marks.shape[1]:
        raise InputError(
            f"Reviewers have {marks.shape[1]} areas and papers {paper_marks.shape[1]}: give both the same columns."
        )
    secondary = _checked_secondary(areas, marks.shape[1])
    if surplus not in ("drop", "keep"):
        raise InputError(f"Expected surplus 'drop' or 'keep', got surplus={surplus!r}.")
    named = own.areas or other.areas or tuple(f"area {n + 1}" for n in range(marks.shape[1]))
    if not draw_primary:
        need_primary(own)
        need_primary(other)
    chance = None if seed is None else np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, 0x9A9E5])))
    primary = _primaries(marks, own.primary, _random_numbers(own, chance))
    paper_first = _primaries(paper_marks, other.primary, _random_numbers(other, chance))
    numbers = _random_numbers(own, chance)
    kept = marks if surplus == "keep" else _without_surplus(marks, primary, secondary, numbers)
    too_many = np.flatnonzero(marks.sum(axis=1) > areas)
    return make_problem(
        Conference(_vectors(paper_marks, paper_first), named, secondary),
        _vectors(kept, primary),
        truth=_vectors(marks, primary),
        agent_ids=own.ids or None,
        resource_ids=other.ids or tuple(map(str, range(len(paper_marks)))),
        epsilon=own.epsilon if epsilon is None else for_all_agents(epsilon, len(marks)),
        interest=interest,
        uncovered=too_many.tolist() if surplus == "keep" else (),
        notes=_notes(len(too_many), len(marks), areas, surplus),
        warnings=(single_type("of every primary area"),) if areas == 1 else (),
        disclosure=_of_draw(marks.shape[1], seeded=seed is not None) if own.primary is None else None,
        library=library_of(reviewers),
        check=False,
        capacity=given_or(other.units, capacity),
        demand=given_or(own.units, demand),
        conflicts=conflicts,
    )


def _as_labels(
    given: Marks,
    source: str,
    role: Literal["agents", "resources"],
    names: Sequence[str] | None,
    ids: Sequence[str] | None,
    primary: ArrayLike | None,
) -> Labels:
    """Return the labels of a frame or an array, without ids where it has none; what is given beside it goes first."""
    if isinstance(given, Labels):
        labels = given
    elif is_frame(given):
        sheet = sheet_of(given, source)
        labels = labels_of(sheet, identifiers_or_numbers(sheet), role=role)
        labels = labels if find_column(sheet, "id") is not None else replace(labels, ids=())
    else:
        marks = _checked_marks(given, source)
        labels = Labels(source, (), (), marks, None, None)
    if names is not None and len(names) != labels.marks.shape[1]:
        raise InputError(f"Expected a name for each of the {labels.marks.shape[1]} areas, got {len(names)}.")
    return replace(
        labels,
        ids=labels.ids if ids is None else tuple(map(str, ids)),
        areas=labels.areas if names is None else tuple(map(str, names)),
        primary=labels.primary if primary is None else _checked_primary(labels, primary),
    )


def _checked_primary(labels: Labels, primary: ArrayLike) -> IntArray:
    rows, areas = labels.marks.shape
    chosen = np.asarray(primary, dtype=np.int64)
    if chosen.shape != (rows,) or chosen.min() < 0 or chosen.max() >= areas:
        raise InputError(f"{labels.source}: expected a primary area from 0 to {areas - 1} for each of {rows} rows.")
    if not labels.marks[np.arange(rows), chosen].all():
        raise InputError(f"{labels.source}: a primary area has to be one of the row's own areas.")
    return chosen


def _of_draw(most: int, *, seeded: bool) -> Disclosure:
    """Return what it tells to draw a public primary area from a private set.

    A set of k areas makes an area public with probability 1/k, so that two sets which share it differ by a factor of
    at most the largest k. That is the number of all areas: how many a reviewer has is private, and a k computed from
    the reviewers would tell the size of the largest set.
    """
    chance = "from a seed that can be known, so this is a simulation" if seeded else "secretly"
    return Disclosure(
        # A little more than ln k: two of k random numbers, which have 53 bits, can be equal.
        epsilon=float(np.log(most)) + 1e-9 if most > 1 else 0.0,
        reason=f"the draw of a public primary area from up to {most} private areas (ln {most})",
        assumption=f"Primary areas were drawn {chance}, and once: another draw for the same reviewer costs ln k again.",
    )


def _notes(too_many: int, all_agents: int, areas: int, surplus: str) -> tuple[str, ...]:
    if not too_many:
        return ()
    whom = f"{too_many} of {all_agents} reviewers have more than {areas} area{'s' * (areas != 1)}"
    if surplus == "keep":
        return (f"{whom}: they act on all of them, and only methods that act as the nearest possible type cover them.",)
    return (f"{whom}: they act on {areas} of them, drawn at random, and the guarantee covers them.",)


def types_of_region(areas: int, named: int) -> int:
    """Return how many possible reviewers a region has, with at most so many of the named areas each."""
    return sum(comb(named - 1, further) for further in range(areas))


def _checked_secondary(areas: int, named: int) -> int:
    """Return m of the paper: how many areas besides the primary one a possible reviewer may have."""
    if not 1 <= areas <= named:
        raise InputError(f"Expected areas from 1 to {named}, as many as there are, got areas={areas}.")
    types = types_of_region(areas, named)
    if types > _MOST_TYPES:
        raise InputError(
            f"With areas={areas} of {named} a region has {types:,} possible reviewers, more than "
            f"{_MOST_TYPES:,}: choose a smaller number."
        )
    return int(areas) - 1


def _checked_marks(marks: ArrayLike, what: str) -> NDArray[np.uint8]:
    table = np.asarray(marks)
    if table.ndim != 2 or table.size == 0:
        raise InputError(f"{what}: expected one row each with one column for each area, got shape {table.shape}.")
    if not np.isin(table, (0, 1)).all():
        raise InputError(f"{what}: expected marks 0 or 1, found something else.")
    bare = np.flatnonzero(table.sum(axis=1) == 0)
    if len(bare):
        raise InputError(f"{what}, row {bare[0]}: has no area, so it belongs to no region; give it at least one.")
    return table.astype(np.uint8)


def _random_numbers(labels: Labels, chance: np.random.Generator | None) -> FloatArray:
    """Return a random number for every mark, which depends on a row's id and not on its place in the file.

    Without a generator each is the operating system's: from those that primary areas show of one generator, its others
    could be computed.
    """
    shape = labels.marks.shape
    if chance is None:
        bits = np.frombuffer(os.urandom(8 * labels.marks.size), dtype="<u8").reshape(shape)
        return np.asarray((bits >> np.uint64(11)) / GRID)
    order = np.argsort(np.array(labels.ids), kind="stable") if labels.ids else np.arange(len(labels.marks))
    numbers = np.empty(shape)
    numbers[order] = chance.random(shape)
    return numbers


def _primaries(marks: NDArray[np.uint8], given: IntArray | None, numbers: FloatArray) -> IntArray:
    """Return the given primary areas, or a uniformly drawn area of each row."""
    if given is not None:
        return given
    return np.asarray(np.where(marks == 1, numbers, -1.0).argmax(axis=1))


def _without_surplus(
    marks: NDArray[np.uint8], primary: IntArray, secondary: int, numbers: FloatArray
) -> NDArray[np.uint8]:
    """Return marks with at most `secondary` areas besides the primary one, kept at random."""
    priority = np.where(marks == 1, numbers, 2.0)
    priority[np.arange(len(marks)), primary] = -1.0
    order = priority.argsort(axis=1).argsort(axis=1)
    return np.where(order <= secondary, marks, 0).astype(np.uint8)


def _vectors(marks: NDArray[np.uint8], primary: IntArray) -> FloatArray:
    vectors = np.where(marks == 1, SECONDARY, OTHER)
    vectors[np.arange(len(marks)), primary] = PRIMARY
    return vectors
