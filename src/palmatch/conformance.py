"""The rules that a domain has to keep, tried on some types: what the rest of the package takes for granted.

It says in one sentence which rule is broken first. It knows nothing of what a domain's numbers mean, and plays nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from palmatch.domain import Domain, Expecting, FloatArray, IntArray, Narrowing, Region, kind


def check_domain(domain: Domain, types: ArrayLike, *, resources: int | None = None, regions: int | None = None) -> None:
    """Try a domain on some types and raise an AssertionError for the first rule that it breaks.

    Parameters
    ----------
    domain:
        What is tried: `utility`, `region_of`, `types_of`, `representative`; `candidates`, `prior` if it has them.
    types:
        A few agents as the domain describes them, one a row; the regions that are tried are theirs.
    resources:
        How many resources there are; by default as many as `domain.utility(types)` has columns.
    regions:
        How many of the types' regions are tried at most; all of them unless given.

    Examples
    --------
    >>> import palmatch as pm
    >>> from palmatch.testing import check_domain
    >>> town = pm.mobility.problem([(40.75, -73.99)], [(40.76, -73.98), (40.71, -74.0)])
    >>> check_domain(town.domain, town.types)

    References
    ----------
    - Page "Domains", [One of your own][].
    - Page "The guarantee", [What is assumed][]: regions and possible types are public.
    """
    for name in ("utility", "region_of", "types_of", "representative"):
        require(callable(getattr(domain, name, None)), f"Expected the domain to have a method {name}, found none.")
    rows = np.array(types, dtype=np.float64)
    require(
        rows.ndim == 2 and rows.size > 0, f"Expected types to try, one a row, with columns, got shape {rows.shape}."
    )
    table = checked_table(domain, rows, "types", resources=resources)
    _check_columns(domain, rows, table)
    _check_rows(domain, rows, table)
    found = sorted(set(_checked_regions(domain, rows)))  # type: ignore[type-var]  # that they sort is checked
    for region in found[:regions]:
        _check_region(domain, region, width=rows.shape[1], resources=table.shape[1])


def checked_table(
    domain: Domain, types: FloatArray, what: str, *, resources: int | None, columns: IntArray | None = None
) -> FloatArray:
    """Return utilities whose shape, range and repeatability have been checked."""
    untouched = types.copy()
    given = (types,) if columns is None else (types, columns)
    table: FloatArray = _result_of(domain.utility, f"utility({what})", *given)
    require(isinstance(table, np.ndarray), f"Expected utility({what}) to be an array, got {type(table).__name__}.")
    require(table.dtype == np.float64, f"Expected utility({what}) in float64, got {table.dtype}.")
    wide = "the number of resources" if resources is None else resources
    require(
        table.ndim == 2 and len(table) == len(types) and table.shape[1] >= 1 and resources in (None, table.shape[1]),
        f"Expected utility({what}) of shape ({len(types)}, {wide}), got {table.shape}.",
    )
    wrong = np.argwhere(~(np.isfinite(table) & (table > 0) & (table <= 1)))
    if len(wrong):
        row, column = wrong[0]
        raise AssertionError(
            f"Expected utility({what}) in (0, 1], got {kind(table[row, column])} for row {row} and column {column}."
        )
    require(np.array_equal(types, untouched, equal_nan=True), f"Expected utility({what}) to leave its types alone.")
    again = _result_of(domain.utility, f"utility({what})", *given)
    require(np.array_equal(table, again), f"Expected utility({what}) to be the same when it is asked for twice.")
    return table


def _check_columns(domain: Domain, types: FloatArray, table: FloatArray) -> None:
    """Compare subsets of the columns with the whole table, bit for bit: players and scorers ask for different ones."""
    for columns in _some_subsets(table.shape[1]):
        part = checked_table(domain, types, "types, columns", resources=len(columns), columns=columns)
        wrong = np.argwhere(part != table[:, columns])
        if len(wrong):
            row, place = wrong[0]
            raise AssertionError(
                f"Expected utility(types, columns) to agree with utility(types), but for row {row} and column "
                f"{columns[place]} the one is {part[row, place]!r} and the other {table[row, columns[place]]!r} "
                f"(columns={columns.tolist()})."
            )


def _check_rows(domain: Domain, types: FloatArray, table: FloatArray) -> None:
    """Compare subsets of the rows with the whole table: what one agent likes must not depend on who else is asked."""
    for rows in _some_subsets(len(types)):
        part = checked_table(domain, types[rows], "some types", resources=table.shape[1])
        wrong = np.argwhere(part != table[rows])
        if len(wrong):
            place, column = wrong[0]
            raise AssertionError(
                f"Expected a type's utility to be the same whichever others are asked about, but for row {rows[place]} "
                f"and column {column} it is {part[place, column]!r} among rows {rows.tolist()} and "
                f"{table[rows[place], column]!r} among all."
            )


def _some_subsets(count: int) -> list[IntArray]:
    """Return a few places alone, all in falling order, every second one, and a fixed shuffle of all and of half."""
    alone = [np.array([place]) for place in sorted({0, count // 2, count - 1})]
    shuffled = np.random.Generator(np.random.PCG64(count)).permutation(count)
    several = [np.arange(count)[::-1].copy(), np.arange(0, count, 2), shuffled, np.sort(shuffled[: (count + 1) // 2])]
    return [np.asarray(subset, dtype=np.int64) for subset in alone + several]


def _checked_regions(domain: Domain, types: FloatArray) -> list[Region]:
    """Return the region of each type after checking that they can be told apart, sorted and asked for again."""
    regions = _regions_of(domain, types, "types")
    require(
        _regions_of(domain, types, "types") == regions,
        "Expected region_of(types) to be the same when it is asked for twice.",
    )
    for rows in _some_subsets(len(types)):
        part = _regions_of(domain, types[rows], "some types")
        for place, row in enumerate(rows):
            require(
                part[place] == regions[row],
                f"Expected a type's region to be the same whichever others are asked about, but for row {row} it is "
                f"{part[place]} among rows {rows.tolist()} and {regions[row]} among all.",
            )
    return regions


def _regions_of(domain: Domain, types: FloatArray, what: str) -> list[Region]:
    regions = list(_result_of(domain.region_of, f"region_of({what})", types))
    require(
        len(regions) == len(types),
        f"Expected region_of({what}) to give one region per type ({len(types)}), got {len(regions)}.",
    )
    for row, region in enumerate(regions):
        try:
            hash(region)
        except TypeError as error:
            raise AssertionError(f"Expected hashable regions, got {region!r} for row {row}.") from error
        require(region == region, f"Expected a region to equal itself, got {region!r} for row {row}.")
    _check_sortable(regions)
    return regions


def _check_sortable(regions: Sequence[Region]) -> None:
    distinct = list(dict.fromkeys(regions))
    try:
        ordered: list[Any] = sorted(distinct)
        total = all(one < two for one, two in pairwise(ordered))
    except (TypeError, ValueError) as error:
        raise AssertionError(f"Expected regions that can be sorted, got {distinct!r}: {error}.") from error
    require(total, f"Expected regions of which one always comes before the other, got {distinct!r}.")


def _check_region(domain: Domain, region: Region, *, width: int, resources: int) -> None:
    what = f"types_of({region})"
    possible = _result_of(domain.types_of, what, region)
    require(
        isinstance(possible, np.ndarray) and possible.dtype == np.float64,
        f"Expected {what} to be a float64 array, got {getattr(possible, 'dtype', type(possible).__name__)}.",
    )
    require(
        possible.ndim == 2 and len(possible) > 0 and possible.shape[1] == width,
        f"Expected {what} to have at least one row, each as wide as a type ({width}), got shape {possible.shape}.",
    )
    again = _result_of(domain.types_of, what, region)
    require(np.array_equal(possible, again), f"Expected {what} to be the same when it is asked for twice.")
    _check_representative(domain, region, len(possible))
    for row, found in enumerate(_regions_of(domain, possible, what)):
        require(found == region, f"Expected every row of {what} to be in region {region}, but row {row} is in {found}.")
    table = checked_table(domain, possible, what, resources=resources)
    if isinstance(domain, Expecting):
        _check_prior(domain, region, len(possible))
    if isinstance(domain, Narrowing):
        for interest in sorted({1, 2, 3, resources // 2, resources - 1} & set(range(1, resources))):
            _check_candidates(domain, region, interest, table)


def _check_representative(domain: Domain, region: Region, types: int) -> None:
    row = _result_of(domain.representative, f"representative({region})", region)
    require(
        isinstance(row, int | np.integer) and not isinstance(row, bool) and 0 <= row < types,
        f"Expected representative({region}) to be a row number of types_of({region}), from 0 to {types - 1}, "
        f"got {row!r}.",
    )
    again = _result_of(domain.representative, f"representative({region})", region)
    require(row == again, f"Expected representative({region}) to be the same when it is asked for twice.")


def _check_prior(domain: Expecting, region: Region, types: int) -> None:
    what = f"prior({region})"
    weights = _result_of(domain.prior, what, region)
    require(
        isinstance(weights, np.ndarray) and weights.shape == (types,),
        f"Expected {what} to be an array of a weight for each of the {types} rows of types_of({region}), "
        f"got {weights!r}.",
    )
    require(
        np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0,
        f"Expected the weights of {what} to be numbers of at least 0, and some above 0.",
    )
    again = _result_of(domain.prior, what, region)
    require(np.array_equal(weights, again), f"Expected {what} to be the same when it is asked for twice.")


def _check_candidates(domain: Narrowing, region: Region, interest: int, table: FloatArray) -> None:
    what = f"candidates({region}, {interest})"
    columns = _result_of(domain.candidates, what, region, interest)
    require(
        isinstance(columns, np.ndarray) and columns.ndim == 1 and np.issubdtype(columns.dtype, np.integer),
        f"Expected {what} to be a list of column numbers in an array of integers, got {columns!r}.",
    )
    require(
        all(0 <= one < table.shape[1] for one in columns.tolist()) and (np.diff(columns) > 0).all(),
        f"Expected {what} to be column numbers below {table.shape[1]}, ascending, each once, got {columns.tolist()}.",
    )
    # All that tie with the last one count: which of them a type prefers depends on their public ids.
    last = -np.sort(-table, axis=1)[:, interest - 1]
    wanted = table >= last[:, None]
    wanted[:, columns] = False
    missing = np.argwhere(wanted)
    if len(missing):
        row, column = missing[0]
        raise AssertionError(
            f"Expected {what} to hold the {interest} best resources of every type of the region, ties included, but "
            f"column {column} is among those of row {row} of types_of({region}) and is missing."
        )


def _result_of(function: Callable[..., Any], what: str, *arguments: Any) -> Any:
    """Call a domain's function; what it raises is a broken rule too."""
    try:
        return function(*arguments)
    except Exception as error:
        raise AssertionError(f"Expected {what} to work, but it raised {type(error).__name__}: {error}") from error


def require(holds: bool | np.bool_, sentence: str) -> None:
    """Raise an AssertionError with this sentence unless something holds."""
    if not holds:
        raise AssertionError(sentence)
