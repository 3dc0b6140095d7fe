"""What a domain is: the protocols that say what "utility" and "region" mean, and the optional ones that make it fast.

Nothing in here knows of agents' ids, of problems or of matchings.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from palmatch.errors import InputError

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
Region: TypeAlias = Hashable
Kind = TypeVar("Kind")


@runtime_checkable
class Utility(Protocol):
    """How much any possible agent likes each resource.

    Examples
    --------
    >>> import palmatch as pm
    >>> rows = [[0.9, 0.3], [0.3, 0.9]]
    >>> problem = pm.table.problem(rows, ["here"] * 2, {"here": rows})
    >>> isinstance(problem.domain, pm.Utility)
    True

    References
    ----------
    - [Danassis, Triastcyn, Faltings (AAMAS 2022)][], Sec. "The Assignment Problem": the utility u_n(r).
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


@runtime_checkable
class Partition(Protocol):
    """The public partition of all possible agents ("types") into regions: φ of the paper.

    Examples
    --------
    >>> import palmatch as pm
    >>> rows = [[0.9, 0.3], [0.3, 0.9]]
    >>> problem = pm.table.problem(rows, ["here"] * 2, {"here": rows})
    >>> len(problem.domain.types_of("here"))
    2

    References
    ----------
    - [Danassis, Triastcyn, Faltings (AAMAS 2022)][], Sec. "Piecewise Local Differential Privacy (PLDP)": the function φ
      of the definition.
    - Page "Domains", [One of your own][].
    """

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
class Domain(Utility, Partition, Protocol):
    """What "utility" and "region" mean: `Utility` and `Partition` in one object.

    `palmatch.testing.check_domain` tries one; `palmatch.make_problem` has an example.

    Examples
    --------
    >>> import palmatch as pm
    >>> rows = [[0.9, 0.3], [0.3, 0.9]]
    >>> problem = pm.table.problem(rows, ["here"] * 2, {"here": rows})
    >>> isinstance(problem.domain, pm.Domain)
    True

    References
    ----------
    - [Danassis, Triastcyn, Faltings (AAMAS 2022)][], Sec. "Elaborative Example on Neighborhoods".
    - [PEP 544][]: a domain need not inherit from a protocol.
    - Page "Domains", [One of your own][].
    """


@runtime_checkable
class Narrowing(Protocol):
    """An optional protocol of a domain: which resources can matter in a region at all."""

    def candidates(self, region: Region, interest: int) -> IntArray:
        """Return ascending columns that hold the `interest` best resources of every type, ties included."""
        ...


@runtime_checkable
class Listing(Protocol):
    """An optional protocol of a domain in which most resources are worth the same to all types of a region."""

    def listed(self, region: Region) -> tuple[IntArray, FloatArray]:
        """Return some columns, and the utilities of `types_of(region)` in them; then that of every other resource."""
        ...


@runtime_checkable
class Crowded(Protocol):
    """An optional protocol of a domain: answers for very many agents at once, without an object for each of them."""

    def grouped(self, types: FloatArray) -> tuple[tuple[Region, ...], IntArray]:
        """Return the regions that occur, sorted, and which of them each type is in: the same as `region_of` says."""
        ...

    def utility_of_pairs(self, types: FloatArray, columns: IntArray) -> FloatArray:
        """Return the utility of one resource to each type: the same numbers as in the table of `utility`."""
        ...


@runtime_checkable
class Expecting(Protocol):
    """An optional protocol of a domain: public knowledge of where in a region agents are likely to be.

    It changes how good matchings are, never the guarantee.
    """

    def prior(self, region: Region) -> FloatArray:
        """Return a weight of at least 0 for each of `types_of(region)`, some of them above 0."""
        ...


@runtime_checkable
class ExpectingAll(Protocol):
    """An optional protocol of a domain that is `Expecting`: the priors of very many regions at once."""

    def priors(self, regions: Sequence[Region]) -> list[FloatArray]:
        """Return `prior(region)` of each region."""
        ...


@runtime_checkable
class Informed(Expecting, Protocol):
    """An optional protocol of a domain whose prior was computed from data that became public with it."""

    @property
    def prior_source(self) -> str:
        """The name of that data; nothing where the prior follows from the resources alone."""
        ...


@runtime_checkable
class Snapping(Protocol):
    """An optional protocol of a domain: which possible type of a region is nearest to an agent."""

    def nearest(self, region: Region, types: FloatArray) -> IntArray:
        """Return a row of `types_of(region)` for each type."""
        ...


@runtime_checkable
class Located(Protocol):
    """An optional protocol of a domain: agents and resources are places in the plane.

    The first two numbers of a type are its place in metres. A resource at an L1 distance of d metres has the utility
    `distance.worth(d, -1 / alpha)`. Regions are squares (edge, column, row) whose possible types are a grid: the same
    points along both edges. With bounded interest such a problem is prepared over a grid of places, for all regions at
    once and without a table of all utilities.
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

    def types_of(self, region: Region) -> FloatArray:
        """Return every possible type of a region, one a row."""
        ...

    def spots(self, types: FloatArray) -> IntArray:
        """Return which row of `types_of` of its own region is nearest to each type."""
        ...

    def representative(self, region: Region) -> int:
        """Return which row of `types_of(region)` stands for the region."""
        ...


@runtime_checkable
class Mutual(Protocol):
    """An optional protocol of a domain whose resources are agents: what they are worth once their types are known.

    `utility` values a partner by what is public of it, its region's representative.
    """

    def between(self, types: FloatArray, partners: FloatArray) -> FloatArray:
        """Return what a partner of each type (columns) is worth to an agent of each type (rows): 0 or more."""
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
