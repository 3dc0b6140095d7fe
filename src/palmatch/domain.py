"""What a domain is: the protocols that say what "utility" and "region" mean, and the rules that a domain has to keep.

`check_domain` tries the rules on some types and says in one sentence which is broken first. Nothing in here knows of
agents' ids, of problems or of matchings.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from palmatch.errors import InputError

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
Region: TypeAlias = Hashable
Kind = TypeVar("Kind")


@runtime_checkable
class Domain(Protocol):
    """What "utility" and "region" mean: u_n(r) of the paper, and its public partition φ of all possible agents.

    A domain need not inherit from it. `palmatch.testing.check_domain` tries one; `palmatch.make_problem` has an
    example.

    Examples
    --------
    >>> import palmatch as pm
    >>> rows = [[0.9, 0.3], [0.3, 0.9]]
    >>> problem = pm.table.problem(rows, ["here"] * 2, {"here": rows})
    >>> isinstance(problem.domain, pm.Domain)
    True

    References
    ----------
    - [Danassis, Triastcyn, Faltings (AAMAS 2022)][], Sec. "The Assignment Problem" and Sec. "Piecewise Local
      Differential Privacy (PLDP)".
    - [PEP 544][]: a domain need not inherit from a protocol.
    - Page "Domains", [One of your own][].
    """

    def utility(self, types: FloatArray, columns: IntArray | None = None) -> FloatArray:
        """Return utilities in (0, 1], one row a type, one column a resource (all of them, or `columns`).

        Parameters
        ----------
        types:
            Possible agents, one a row.
        columns:
            Which resources; all of them unless given.

        Returns
        -------
        array
            A row for each type, a column for each resource.
        """
        ...

    def region_of(self, types: FloatArray) -> Sequence[Region]:
        """Return the region of each type. Regions of one partition can be sorted; `str(region)` is for readers.

        Parameters
        ----------
        types:
            Possible agents, one a row.

        Returns
        -------
        sequence
            A region for each type.
        """
        ...

    def types_of(self, region: Region) -> FloatArray:
        """Return every possible type of a region, one a row.

        Parameters
        ----------
        region:
            What `region_of` returned.

        Returns
        -------
        array
            Possible types, one a row.
        """
        ...

    def representative(self, region: Region) -> int:
        """Return which row of `types_of(region)` stands for the region: n* of the paper.

        Parameters
        ----------
        region:
            What `region_of` returned.

        Returns
        -------
        int
            A row number.
        """
        ...


@runtime_checkable
class HasPrior(Protocol):
    """An optional protocol of a domain: public knowledge of where in a region agents are likely to be.

    It changes how good matchings are, never the guarantee.
    """

    @property
    def prior_source(self) -> str:
        """The name of data that became public with the prior; empty where it follows from the resources alone."""
        ...

    def priors(self, regions: Sequence[Region]) -> Sequence[FloatArray]:
        """Return for each region a weight of at least 0 for each of `types_of(region)`, some of them above 0."""
        ...


@runtime_checkable
class HasCoordinates(Domain, Protocol):
    """An optional protocol of a domain: agents and resources are places in the plane.

    The first two numbers of a type are its place in metres. A resource at an L1 distance of d metres has the utility
    `distance.worth(d, -1 / alpha)`. Regions are squares (edge, column, row) whose possible types are a grid: the same
    points along both edges. With bounded interest such a problem is prepared by grid search, for all regions at once
    and without a table of all utilities.
    """

    @property
    def places(self) -> FloatArray:
        """Where the resources are, in metres: (R, 2)."""
        ...

    @property
    def alpha(self) -> float:
        """The distance in metres over which a utility falls to 1/e."""
        ...

    def corners(self, squares: FloatArray) -> FloatArray:
        """Return the south-western corner in metres of each square, given as rows (edge, column, row)."""
        ...

    def axis(self, edge: float) -> FloatArray:
        """Return the distances in metres of the grid's points from the corner, along an edge."""
        ...

    def spots(self, types: FloatArray) -> IntArray:
        """Return which row of `types_of` of its own region is nearest to each type."""
        ...

    def grouped(self, types: FloatArray) -> tuple[tuple[Region, ...], IntArray]:
        """Return the regions that occur, sorted, and which of them each type is in: the same as `region_of` says."""
        ...

    def utility_of_pairs(self, types: FloatArray, columns: IntArray) -> FloatArray:
        """Return the utility of one resource to each type: the same numbers as in the table of `utility`."""
        ...


@runtime_checkable
class SparseUtilities(Domain, Protocol):
    """An optional protocol of a domain in which most resources are worth the same to all types of a region."""

    def listed(self, region: Region) -> tuple[IntArray, FloatArray]:
        """Return some columns, and the utilities of `types_of(region)` in them; then that of every other resource."""
        ...

    def nearest(self, region: Region, types: FloatArray) -> IntArray:
        """Return which row of `types_of(region)` is nearest to each type."""
        ...

    def grouped(self, types: FloatArray) -> tuple[tuple[Region, ...], IntArray]:
        """Return the regions that occur, sorted, and which of them each type is in: the same as `region_of` says."""
        ...

    def utility_of_pairs(self, types: FloatArray, columns: IntArray) -> FloatArray:
        """Return the utility of one resource to each type: the same numbers as in the table of `utility`."""
        ...


@runtime_checkable
class HasPartners(Domain, Protocol):
    """A domain whose resources are agents: what they are worth once their types are known.

    `utility` values a partner by what is public of it, its region's representative.
    """

    def between(self, types: FloatArray, partners: FloatArray) -> FloatArray:
        """Return what a partner of each type (columns) is worth to an agent of each type (rows): 0 or more."""
        ...

    def nearest(self, region: Region, types: FloatArray) -> IntArray:
        """Return which row of `types_of(region)` is nearest to each type."""
        ...


def of_kind(region: Region, kind: type[Kind]) -> Kind:
    """Return a region, which has to be of a domain's own kind."""
    if not isinstance(region, kind):
        raise TypeError(f"Expected a region of the kind {kind.__name__}, got {region!r}.")
    return region


def checked_utility(domain: Domain, types: FloatArray, columns: IntArray | None = None) -> FloatArray:
    """Return the domain's utilities, refusing anything outside (0, 1]."""
    return checked(domain.utility(types, columns), columns)


def checked(table: FloatArray, columns: IntArray | None = None) -> FloatArray:
    """Return utilities, refusing anything outside (0, 1]."""
    if table.size and not (table.min() > 0.0 and table.max() <= 1.0):  # also false for NaN
        row, column = np.argwhere(~((table > 0.0) & (table <= 1.0)))[0]
        resource = column if columns is None or column == len(columns) else columns[column]
        raise InputError(
            f"Expected utilities in (0, 1], got {kind(table[row, column])} for row {row} and resource {resource}: "
            "scale the utilities, and give a small positive one to what is hardly wanted."
        )
    return table


def kind(value: float) -> str:
    """Say what a wrong utility is without saying its value, which is private."""
    return "no number" if np.isnan(value) else "a number of 0 or less" if value <= 0 else "a number above 1"


# Utilities of agents, and of possible types, that are tried, so that many agents take no longer; but so many agents and
# regions at least.
_TRIED, _LEAST_AGENTS, _LEAST_REGIONS = 20_000, 8, 2

# 16 units in the last place of 1, the largest utility: numpy rounds a sum, a product or a power by its place in memory.
_ROUNDING = 2.0**-48


def check_domain(domain: Domain, types: ArrayLike, *, resources: int | None = None) -> None:
    """Try a domain on some types and raise an AssertionError for the first rule that it breaks.

    Parameters
    ----------
    domain:
        What is tried: `utility`, `region_of`, `types_of`, `representative`; `candidates`, `prior` if it has them.
    types:
        Agents as the domain describes them, one a row; of very many some are tried, and the regions are theirs.
    resources:
        How many resources there are; by default as many as `domain.utility(types)` has columns.

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
    rows = _spread(domain, rows)
    table = checked_table(domain, rows, "types", resources=resources)
    _check_subsets(domain, rows, table)
    found = sorted(set(_checked_regions(domain, rows)))  # type: ignore[type-var]  # that they sort is checked
    tried = 0
    for number, region in enumerate(found):
        if number >= _LEAST_REGIONS and tried >= _TRIED:
            break
        tried += _check_region(domain, region, width=rows.shape[1], resources=table.shape[1])


def _spread(domain: Domain, types: FloatArray) -> FloatArray:
    """Return the types that are tried, spread over all of them."""
    first = _result_of(domain.utility, "utility(types)", types[:1].copy())
    most = min(len(types), max(_LEAST_AGENTS, _TRIED // max(getattr(first, "size", 1), 1)))
    return types[np.unique(np.linspace(0, len(types) - 1, most).astype(np.int64))]


def checked_table(
    domain: Domain, types: FloatArray, what: str, *, resources: int | None, columns: IntArray | None = None
) -> FloatArray:
    """Return utilities whose shape, range and repeatability have been checked."""
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
    return table


def _check_subsets(domain: Domain, types: FloatArray, table: FloatArray) -> None:
    """Compare subsets of columns, and of rows, with the whole table: players and scorers ask for different ones."""
    every_row, every_column = np.arange(len(types)), np.arange(table.shape[1])
    parts = [(every_row, columns, True) for columns in _some_subsets(table.shape[1])]
    parts += [(rows, every_column, False) for rows in _some_subsets(len(types))]
    for rows, columns, by_column in parts:
        what, asked = ("types, columns", columns) if by_column else ("some types", None)
        part = checked_table(domain, types[rows], what, resources=len(columns), columns=asked)
        wrong = np.argwhere(~(np.abs(part - table[np.ix_(rows, columns)]) <= _ROUNDING))
        if len(wrong):
            expected = "a type's utility to be the same whichever others are asked about"
            expected = "utility(types, columns) to agree with utility(types)" if by_column else expected
            raise AssertionError(
                f"Expected {expected}, but for rounding; it differs for row {rows[wrong[0][0]]} and column "
                f"{columns[wrong[0][1]]}: compute each utility from its own type and resource alone, in float64."
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
    for rows in _some_subsets(len(types)):
        part = _regions_of(domain, types[rows], "some types")
        for place, row in enumerate(rows):
            require(
                part[place] == regions[row],
                f"Expected a type's region to be the same whichever others are asked about, but for row {row} it is "
                f"{part[place]} among {len(rows)} of them and {regions[row]} among all.",
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


def _check_region(domain: Domain, region: Region, *, width: int, resources: int) -> int:
    """Try a region, and return how many utilities were tried."""
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
    _check_representative(domain, region, len(possible))
    for row, found in enumerate(_regions_of(domain, possible, what)):
        require(found == region, f"Expected every row of {what} to be in region {region}, but row {row} is in {found}.")
    table = checked_table(domain, possible, what, resources=resources)
    require(
        isinstance(domain, HasPrior) or not hasattr(domain, "priors"),
        "Expected a domain with priors to name the data that they come from, as prior_source.",
    )
    if isinstance(domain, HasPrior):
        _check_prior(domain, region, len(possible))
    return table.size


def _check_representative(domain: Domain, region: Region, types: int) -> None:
    row = _result_of(domain.representative, f"representative({region})", region)
    require(
        isinstance(row, int | np.integer) and not isinstance(row, bool) and 0 <= row < types,
        f"Expected representative({region}) to be a row number of types_of({region}), from 0 to {types - 1}, "
        f"got {row!r}.",
    )


def _check_prior(domain: HasPrior, region: Region, types: int) -> None:
    what = f"priors([{region}])"
    found = _result_of(domain.priors, what, [region])
    require(
        isinstance(found, Sequence) and len(found) == 1, f"Expected {what} to be a list of one array, got {found!r}."
    )
    weights = found[0]
    require(
        isinstance(weights, np.ndarray) and weights.shape == (types,),
        f"Expected {what} to be an array of a weight for each of the {types} rows of types_of({region}), "
        f"got {weights!r}.",
    )
    require(
        np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0,
        f"Expected the weights of {what} to be numbers of at least 0, and some above 0.",
    )


def _result_of(function: Callable[..., Any], what: str, *arguments: Any) -> Any:
    """Call a domain's function twice; what it raises, and another result but for rounding, is a broken rule too."""
    untouched = [given.copy() if isinstance(given, np.ndarray) else given for given in arguments]
    try:
        result, again = function(*arguments), function(*arguments)
    except Exception as error:
        raise AssertionError(f"Expected {what} to work, but it raised {raised(error)}.") from error
    require(_same(untouched, list(arguments)), f"Expected {what} to leave its types alone.")
    require(_same(result, again), f"Expected {what} to be the same when it is asked for twice.")
    return result


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, list | tuple):
        return isinstance(other, type(one)) and len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, np.ndarray) and one.dtype == np.float64:
        return np.shape(other) == one.shape and bool(np.allclose(one, other, rtol=0, atol=_ROUNDING, equal_nan=True))
    return type(one) is type(other) and bool(np.all(one == other))


def raised(error: Exception) -> str:
    """Say what was raised, and by which line of code; not its text, which may quote what is private."""
    at_line = error.__traceback__
    while at_line is not None and at_line.tb_next is not None:
        at_line = at_line.tb_next
    where = "" if at_line is None else f" in {at_line.tb_frame.f_code.co_filename}, line {at_line.tb_lineno}"
    return f"{type(error).__name__}{where}"


def require(holds: bool | np.bool_, sentence: str) -> None:
    """Raise an AssertionError with this sentence unless something holds."""
    if not holds:
        raise AssertionError(sentence)
