"""Agents and resources as sets of subject areas, read from a file of 0/1 columns and checked.

Every column that is not `id`, `epsilon`, `primary`, `demand` (agents) or `capacity` (resources) is an area. Knows
nothing of what the areas are used for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from palmatch.data.columns import complaint, epsilons, find_column, identifiers, marks, texts, unit_counts
from palmatch.data.files import FilePath, Sheet, listed, read_sheet
from palmatch.errors import InputError


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
        primary=_primaries(sheet, first, areas=areas, marked=marked),
        units=unit_counts(sheet, limit),
    )


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


def _primaries(
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
