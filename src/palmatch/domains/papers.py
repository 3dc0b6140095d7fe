"""Reviewers and papers: a good paper is one in one's areas, and one's main area is all that anybody may know.

Everyone has a set of subject areas, one of them primary. The primary one counts 1, the others 0.5, the rest 0.1, and
utility is the cosine of two such vectors. A region is a primary area; its possible agents are all sets of at most
`secondary` further areas; the bare primary area represents it (Sec. "Test-Case 2" of the paper).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from palmatch.errors import InputError
from palmatch.problem import FloatArray, IntArray, Problem, Region, for_everybody, make_problem

PRIMARY, SECONDARY, OTHER = 1.0, 0.5, 0.1

# 25 areas with 4 further ones make 12,951 types; beyond this the tables no longer fit a common machine.
_MOST_TYPES = 2_000_000


class Area(NamedTuple):
    """A region: everybody whose primary area this is."""

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
        papers = self.papers if columns is None else self.papers[columns]
        # einsum, not a BLAS product: its sums do not depend on the number of threads or of rows.
        cosine = np.einsum("ta,pa->tp", np.ascontiguousarray(types), papers)
        cosine /= np.linalg.norm(types, axis=1)[:, None]
        cosine /= np.linalg.norm(papers, axis=1)[None, :]
        bounded: FloatArray = np.minimum(cosine, 1.0)
        return bounded

    def region_of(self, types: FloatArray) -> Sequence[Region]:
        """Return each type's primary area."""
        return [Area(int(number), self.areas[number]) for number in types.argmax(axis=1)]

    def types_of(self, region: Region) -> FloatArray:
        """Return every label set with this primary area and at most `secondary` further ones, the bare one first."""
        primary = _as_area(region).number
        others = [number for number in range(len(self.areas)) if number != primary]
        extras = [chosen for size in range(self.secondary + 1) for chosen in combinations(others, size)]
        types = np.full((len(extras), len(self.areas)), OTHER)
        types[:, primary] = PRIMARY
        for row, chosen in enumerate(extras):
            types[row, list(chosen)] = SECONDARY
        return types

    def representative(self, region: Region) -> int:
        """Return the row of the bare primary area."""
        _as_area(region)
        return 0


def problem(
    reviewers: ArrayLike,
    papers: ArrayLike,
    *,
    secondary: int = 2,
    seed: int = 0,
    surplus: Literal["drop", "keep"] = "drop",
    interest: int | None = None,
    epsilon: ArrayLike | None = None,
    areas: Sequence[str] | None = None,
    reviewer_ids: Sequence[str] | None = None,
    paper_ids: Sequence[str] | None = None,
    reviewer_primary: IntArray | None = None,
    paper_primary: IntArray | None = None,
) -> Problem:
    """Return the problem of matching reviewers to papers, one each.

    Parameters
    ----------
    reviewers, papers:
        0/1 marks, one row each, one column an area.
    secondary:
        m: how many areas besides the primary one a possible agent of a region may have.
    seed:
        For the primary areas, which are drawn uniformly from each row's own areas unless they are given.
    surplus:
        What becomes of a reviewer who has more than `secondary` further areas. "drop": the reviewer acts on
        `secondary` of them, drawn at random, so that the region covers everybody (welfare is scored with all of them).
        "keep": the reviewer acts on all of them, and is named in `Problem.uncovered`, because nothing is promised.
    """
    marks, paper_marks = _checked_marks(reviewers, "reviewers"), _checked_marks(papers, "papers")
    if marks.shape[1] != paper_marks.shape[1]:
        raise InputError(
            f"Reviewers have {marks.shape[1]} areas and papers {paper_marks.shape[1]}: give both the same columns."
        )
    _check_secondary(secondary, marks.shape[1])
    if surplus not in ("drop", "keep"):
        raise InputError(f"Expected surplus 'drop' or 'keep', got surplus={surplus!r}.")
    names = tuple(f"area {n + 1}" for n in range(marks.shape[1])) if areas is None else tuple(map(str, areas))
    if len(names) != marks.shape[1]:
        raise InputError(f"Expected a name for each of the {marks.shape[1]} areas, got {len(names)}.")
    chance = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, 0x9A9E5])))
    primary = _primaries(marks, reviewer_primary, _tickets(marks, reviewer_ids, chance))
    paper_first = _primaries(paper_marks, paper_primary, _tickets(paper_marks, paper_ids, chance))
    truth = _vectors(marks, primary)
    tickets = _tickets(marks, reviewer_ids, chance)
    kept = marks if surplus == "keep" else _without_surplus(marks, primary, secondary, tickets)
    too_many = np.flatnonzero(marks.sum(axis=1) > secondary + 1)
    return make_problem(
        Conference(_vectors(paper_marks, paper_first), names, secondary),
        _vectors(kept, primary),
        truth=truth,
        agent_ids=reviewer_ids,
        resource_ids=tuple(str(n) for n in range(len(paper_marks))) if paper_ids is None else tuple(paper_ids),
        epsilon=for_everybody(epsilon, len(marks)),
        interest=interest,
        uncovered=too_many.tolist() if surplus == "keep" else (),
        notes=_notes(len(too_many), len(marks), secondary, surplus),
    )


def _notes(too_many: int, everybody: int, secondary: int, surplus: str) -> tuple[str, ...]:
    if not too_many:
        return ()
    whom = f"{too_many} of {everybody} reviewers have more than {secondary} areas besides the primary one"
    if surplus == "keep":
        return (f"{whom}: they act on all of them, and the guarantee does not cover them.",)
    return (f"{whom}: they act on {secondary} of them, drawn at random, and the guarantee covers them.",)


def _as_area(region: Region) -> Area:
    if not isinstance(region, Area):
        raise TypeError(f"Expected an Area, got {region!r}.")
    return region


def _check_secondary(secondary: int, areas: int) -> None:
    if not 0 <= secondary < areas:
        raise InputError(
            f"Expected from 1 to {areas} areas for a reviewer (secondary from 0 to {areas - 1}), "
            f"got {secondary + 1} (secondary={secondary})."
        )
    types = sum(comb(areas - 1, size) for size in range(secondary + 1))
    if types > _MOST_TYPES:
        raise InputError(
            f"With {areas} areas and secondary={secondary} a region has {types:,} possible agents, more than "
            f"{_MOST_TYPES:,}: choose a smaller secondary."
        )


def _checked_marks(marks: ArrayLike, what: str) -> NDArray[np.uint8]:
    table = np.asarray(marks)
    if table.ndim != 2 or table.size == 0:
        raise InputError(f"{what}: expected one row each with one column an area, got shape {table.shape}.")
    if not np.isin(table, (0, 1)).all():
        raise InputError(f"{what}: expected marks 0 or 1, got {table[~np.isin(table, (0, 1))][0]}.")
    bare = np.flatnonzero(table.sum(axis=1) == 0)
    if len(bare):
        raise InputError(f"{what}, row {bare[0]}: has no area, so it belongs to no region; give it at least one.")
    return table.astype(np.uint8)


def _tickets(marks: NDArray[np.uint8], ids: Sequence[str] | None, chance: np.random.Generator) -> FloatArray:
    """Return a random number for every mark, which depends on a row's id and not on its place in the file."""
    order = np.arange(len(marks)) if ids is None else np.argsort(np.array([str(name) for name in ids]), kind="stable")
    tickets = np.empty(marks.shape)
    tickets[order] = chance.random(marks.shape)
    return tickets


def _primaries(marks: NDArray[np.uint8], given: IntArray | None, tickets: FloatArray) -> IntArray:
    """Return a uniformly drawn area of each row, or the given ones."""
    if given is None:
        drawn: IntArray = np.where(marks == 1, tickets, -1.0).argmax(axis=1)
        return drawn
    chosen = np.asarray(given, dtype=np.int64)
    if chosen.shape != (len(marks),) or chosen.min() < 0 or chosen.max() >= marks.shape[1]:
        raise InputError(f"Expected a primary area between 0 and {marks.shape[1] - 1} for each of {len(marks)} rows.")
    if not marks[np.arange(len(marks)), chosen].all():
        raise InputError("A primary area has to be one of the row's own areas.")
    return chosen


def _without_surplus(
    marks: NDArray[np.uint8], primary: IntArray, secondary: int, tickets: FloatArray
) -> NDArray[np.uint8]:
    """Return marks with at most `secondary` areas besides the primary one, kept at random."""
    ticket = np.where(marks == 1, tickets, 2.0)
    ticket[np.arange(len(marks)), primary] = -1.0
    order = ticket.argsort(axis=1).argsort(axis=1)
    return np.where(order <= secondary, marks, 0).astype(np.uint8)


def _vectors(marks: NDArray[np.uint8], primary: IntArray) -> FloatArray:
    vectors = np.where(marks == 1, SECONDARY, OTHER)
    vectors[np.arange(len(marks)), primary] = PRIMARY
    return vectors
