"""Public affinities and private bids: what reviewers are known to be good at, and what they would like to read.

A reviewer is a region of its own: its row of public affinities. Its possible types are the ways in which it may have
bid for the few papers of its highest affinities, each paper at one of a few public levels; for every other paper they
have the mean bid of the public prior. By that a reviewer bids in proportion to its affinity, so that what is expected
of a pair ranks pairs as affinities do, and a report that tells nothing changes no matching. A reviewer acts as the type
that is nearest to its bids, so that a guarantee between types is one between any two sets of bids. Utility is the
weighted sum of affinity and bid, as in openreview-matcher. Levels, prior and conflicts never follow from bids.

References
----------
- [openreview-matcher][]: the weighted sum of scores, 0 where a pair has none.
- Page [For programme chairs][for-programme-chairs-from-two-files-to-assignmentsjson].
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike

from palmatch.data.files import listed
from palmatch.data.scores import Range, Scores, as_utility
from palmatch.errors import InputError
from palmatch.guarantee import Secret
from palmatch.problem import FloatArray, IntArray, Problem, Region, for_all_agents, make_problem

_SECRET = Secret(
    between="sets of bids of one reviewer",
    public="Affinities, conflicts, loads, limits, the levels of bids and their prior",
)

# The most possible types of a reviewer, and how many there are unless the number of its candidates is given: 16 gained
# more at ε = 4 and lost up to 0.4 points against affinities alone below (benchmarks.conferences).
MOST_TYPES, USUAL_TYPES = 64, 4

# How likely a bid is for a paper of the highest affinity that there is, unless a prior is given: with 0.8 `once` lost
# 0.1 points against affinities alone at ε = 1 on the bids of one conference of PrefLib (benchmarks.conferences).
USUAL_BID = 0.95

# The number of the type that is a reviewer's own.
OWN = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class BidTable:
    """The domain of bids. A type is (number of the reviewer, number of the type); `OWN` is the reviewer's own.

    Type 0 has the mean bid of the prior for every paper, so that it ranks papers by affinity: it stands for the region
    and has no weight in the prior. Type 1 + t has the level of digit j of t, written in base L, for the reviewer's j-th
    candidate, and the mean for every other paper. For a paper of weighted affinity a the prior gives level l != 0 the
    probability `shares[l]` a / `top`, and the mean bid is `rate` a.

    Attributes
    ----------
    reviewers:
        Ids in ascending order: the names of the regions.
    affinities, bids:
        Weighted scores, sparse, shape (N, R): public, and private.
    candidates:
        Papers of each reviewer's highest affinities, best first, -1 where it has fewer: shape (N, k).
    levels, shares:
        The weighted bids that types consist of, 0 first, and how likely each is for a paper of affinity `top`: public,
        shape (L,).
    top:
        The highest weighted affinity that there is: public.
    near:
        The type of its region that is nearest to each reviewer's bids: private.
    bounds:
        The smallest and largest score: public.
    prior_source:
        Where the affinities come from that the prior follows from.
    """

    reviewers: tuple[str, ...]
    affinities: Any
    bids: Any
    candidates: IntArray
    levels: FloatArray
    shares: FloatArray
    top: float
    near: IntArray
    bounds: Range
    prior_source: str
    places: Mapping[str, int]

    def utility(self, types: FloatArray, columns: IntArray | None = None) -> FloatArray:
        """Return the utilities of weighted sums, of possible types and of reviewers."""
        chosen = np.arange(self.affinities.shape[1]) if columns is None else columns
        reviewer, kind = types.astype(np.int64).T
        scores: FloatArray = self.affinities[reviewer][:, chosen].toarray()
        scores *= np.where(kind == OWN, 1.0, 1 + self.rate)[:, None]
        scores += self._bids_of(reviewer, kind)[:, chosen].toarray()
        return np.asarray(as_utility(scores, self.bounds), dtype=np.float64)

    def utility_of_pairs(self, types: FloatArray, columns: IntArray) -> FloatArray:
        """Return the utility of one paper to each type."""
        reviewer, kind = types.astype(np.int64).T
        scores = _entries(self.affinities, reviewer, columns) * np.where(kind == OWN, 1.0, 1 + self.rate)
        scores += _entries(self._bids_of(reviewer, kind), np.arange(len(types)), columns)
        return np.asarray(as_utility(scores, self.bounds), dtype=np.float64)

    @property
    def rate(self) -> float:
        """The mean weighted bid for a paper, over its weighted affinity; never such that it turns a ranking around."""
        return max(float(self.levels @ self.shares), 0.0) / self.top

    def _bids_of(self, reviewer: IntArray, kind: IntArray) -> Any:
        """Return reviewers' own weighted bids, and for candidates those of possible types above the mean."""
        own = kind == OWN
        papers = self.candidates[reviewer]
        row, place = np.nonzero((papers >= 0) & (~own & (kind > 0))[:, None])
        above = self.levels[(kind[row] - 1) // len(self.levels) ** place % len(self.levels)]
        above = above - self.rate * _entries(self.affinities, reviewer[row], papers[row, place])
        shape = (len(kind), self.bids.shape[1])
        possible = scipy.sparse.csr_array((above, (row, papers[row, place])), shape=shape)
        return scipy.sparse.diags_array(own.astype(np.float64)) @ self.bids[reviewer] + possible

    def listed(self, region: Region) -> tuple[IntArray, FloatArray]:
        """Return the papers for which a reviewer has an affinity, and its types' utilities; last that of others."""
        number = self.places[str(region)]
        first, last = self.affinities.indptr[number : number + 2]
        papers = self.affinities.indices[first:last].astype(np.int64)
        kinds, affinity = self.types_of(region)[1:, 1].astype(np.int64) - 1, self.affinities.data[first:last]
        table = np.zeros((len(kinds) + 1, len(papers) + 1))
        table[:, :-1] = affinity * (1 + self.rate)
        for place, paper in enumerate(self.candidates[number][self.candidates[number] >= 0]):
            column, level = np.searchsorted(papers, paper), kinds // len(self.levels) ** place % len(self.levels)
            table[1:, column] = affinity[column] + self.levels[level]
        return papers, np.asarray(as_utility(table, self.bounds), dtype=np.float64)

    def region_of(self, types: FloatArray) -> Sequence[Region]:
        """Return the reviewer of each type."""
        return [self.reviewers[int(number)] for number in types[:, 0]]

    def grouped(self, types: FloatArray) -> tuple[tuple[Region, ...], IntArray]:
        """Return the reviewers that occur, sorted, and which of them each type is of."""
        occurring, place = np.unique(types[:, 0].astype(np.int64), return_inverse=True)
        return tuple(self.reviewers[number] for number in occurring), place.astype(np.int64)

    def types_of(self, region: Region) -> FloatArray:
        """Return the possible types of a reviewer: every choice of a level for each of its candidates."""
        number = self.places[str(region)]
        count = 1 + len(self.levels) ** int((self.candidates[number] >= 0).sum())
        return np.column_stack((np.full(count, float(number)), np.arange(count, dtype=np.float64)))

    def representative(self, region: Region) -> int:
        """Return the type that has the mean bid for every paper."""
        del region
        return 0

    def nearest(self, region: Region, types: FloatArray) -> IntArray:
        """Return which row of `types_of(region)` is nearest to each type: a function of its reviewer's own bids."""
        del region
        reviewer, kind = types.astype(np.int64).T
        found: IntArray = np.where(kind == OWN, self.near[reviewer], kind)
        return found

    def priors(self, regions: Sequence[Region]) -> Sequence[FloatArray]:
        """Return how likely each possible type is: bids for different papers are independent."""
        number = np.array([self.places[str(region)] for region in regions], dtype=np.int64)
        papers = self.candidates[number]
        affinity = _entries(self.affinities, np.repeat(number, papers.shape[1]), np.maximum(papers, 0).ravel())
        chances = affinity.reshape(papers.shape)[:, :, None] / self.top * self.shares
        chances[:, :, 0] = 1 - chances[:, :, 1:].sum(axis=2)
        found = []
        for own, count in zip(chances, (papers >= 0).sum(axis=1), strict=True):
            levels = np.arange(len(self.levels) ** count)[:, None] // len(self.levels) ** np.arange(count)
            found.append(np.append(0.0, own[np.arange(count), levels % len(self.levels)].prod(axis=1)))
        return found


def _entries(rows: Any, row: IntArray, column: IntArray) -> FloatArray:
    # Of no places scipy makes a sparse array.
    return np.asarray(rows.tocsr()[row, column], dtype=np.float64).ravel() if len(row) else np.zeros(0)


def problem(
    bids: Scores,
    affinities: Scores,
    *,
    share: float = 0.5,
    levels: Sequence[float] = (0.0, 1.0),
    prior: Sequence[float] | None = None,
    looked_at: int | None = None,
    bounds: Range = (0.0, 1.0),
    interest: int | None = None,
    epsilon: ArrayLike | None = None,
    capacity: ArrayLike | None = None,
    demand: ArrayLike | None = None,
    conflicts: Iterable[tuple[str, str]] = (),
    notes: Sequence[str] = (),
) -> Problem:
    """Return the problem of matching reviewers to papers by public affinities and private bids.

    Parameters
    ----------
    bids, affinities:
        Scores of the same papers: what `palmatch.data.scores.read_scores` returns. The reviewers are the users of
        `affinities`, who are public; whoever bids has to be one of them.
    share:
        The weight of a bid, that of an affinity being 1 - `share`.
    levels:
        The bids that possible types consist of, 0 (no bid) among them: public, and never read from the bids.
    prior:
        How likely each level is for a paper of the highest affinity that there is, as weights: public. Unless given,
        0.95 for a bid, each level alike. For any other paper bids are less likely in proportion to its affinity.
    looked_at:
        For how many papers of highest affinity the possible types bid: public. Two with two levels unless given.
    bounds:
        The smallest and largest score that there may be: public.
    interest:
        As in `palmatch.scores.problem`.
    epsilon:
        As in `palmatch.scores.problem`.
    capacity:
        As in `palmatch.scores.problem`.
    demand:
        As in `palmatch.scores.problem`.
    conflicts:
        As in `palmatch.scores.problem`; they are public, and none follows from a bid.
    notes:
        As in `palmatch.scores.problem`.

    Returns
    -------
    Problem
        What every method takes. `Problem.uncovered` names every reviewer: methods that act as the nearest possible type
        (once, palma) cover them, others (published) do not.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> import palmatch as pm
    >>> users, papers = ("ana", "bo"), ("p1", "p2")
    >>> known = pm.data.scores.Scores("affinity.csv", users, papers, csr_array([[0.9, 0.8], [0, 0.4]]))
    >>> told = pm.data.scores.Scores("bids.csv", users, papers, csr_array([[0, 1.0], [0, 0]]))
    >>> pm.bids.problem(told, known, capacity=1)
    Problem(BidTable: 2 agents, 2 resources, 2 regions)

    References
    ----------
    - [openreview-matcher][]: weighted sums of scores.
    - Page "For programme chairs".
    """
    if bids.papers != affinities.papers:
        raise InputError(f"{bids.source} and {affinities.source} are about different papers: give both the same.")
    steps, weights = _checked_levels(levels, prior, bounds)
    order = sorted(range(len(affinities.users)), key=affinities.users.__getitem__)
    reviewers = tuple(affinities.users[place] for place in order)
    places = {name: place for place, name in enumerate(reviewers)}
    strange = [user for user in bids.users if user not in places]
    if strange:
        raise InputError(
            f"Found bids of {len(strange):,} users ({listed(strange, limit=3)}) without an affinity or a line of "
            f"--max-papers: who takes part is public and is never read from {bids.source}; add them there."
        )
    known = (affinities.rows.tocsr()[order] * (1 - share)).tocsr()
    known.sort_indices()
    rows = scipy.sparse.coo_array(bids.rows)
    owner = np.array([places[user] for user in bids.users], dtype=np.int64)
    own = scipy.sparse.csr_array((share * rows.data, (owner[rows.row], rows.col)), shape=known.shape)
    conflicts = list(conflicts)
    candidates = _candidates(known, places, affinities.papers, conflicts, _checked_count(looked_at, len(steps)))
    offered = np.where(candidates >= 0, _entries(own, *_grid(candidates)).reshape(candidates.shape), 0.0)
    digits = np.abs(offered[:, :, None] - share * steps).argmin(axis=2)
    near = 1 + (digits * len(steps) ** np.arange(candidates.shape[1])).sum(axis=1, where=candidates >= 0)
    source = f"the affinities in {affinities.source}"
    top, source_of_prior = float(known.data.max(initial=0.0)) or 1.0, affinities.source
    table = BidTable(
        reviewers, known, own, candidates, share * steps, weights, top, near, bounds, source_of_prior, places
    )
    types = np.column_stack((np.arange(len(reviewers)), np.full(len(reviewers), OWN))).astype(np.float64)
    found = make_problem(
        table,
        types,
        agent_ids=reviewers,
        resource_ids=affinities.papers,
        interest=interest,
        epsilon=for_all_agents(epsilon, len(reviewers)),
        # No bid is exactly a mean one.
        uncovered=range(len(reviewers)),
        notes=notes,
        # A reviewer with one possible type has no affinity: none of its bids is looked at.
        warnings=(),
        check=False,
        capacity=capacity,
        demand=demand,
        conflicts=conflicts,
        source=source,
    )
    return replace(found, secret=_SECRET)


def _checked_levels(
    levels: Sequence[float], prior: Sequence[float] | None, bounds: Range
) -> tuple[FloatArray, FloatArray]:
    """Return the levels, 0 first, and the probability of each."""
    given, weights = np.asarray(levels, dtype=np.float64), np.asarray(prior)
    if prior is None:
        weights = np.where(given == 0, 1 - USUAL_BID, USUAL_BID / max(len(levels) - 1, 1))
    low, high = bounds
    if 0.0 not in given or not 2 <= len(set(given.tolist())) == len(given) <= MOST_TYPES:
        raise InputError(f"Expected 2 to {MOST_TYPES} different levels of bids, 0 (no bid) among them, got {levels}.")
    if given.min() < low or given.max() > high:
        raise InputError(f"Expected levels of bids from {low:g} to {high:g}, got {levels}: say --score-range LOW,HIGH.")
    if len(weights) != len(given) or not (np.isfinite(weights).all() and weights.min() > 0):
        raise InputError(f"Expected a weight above 0 for each of {len(given)} levels of bids, got {prior}.")
    order = np.argsort(np.where(given == 0, -np.inf, given))
    return given[order], (weights / weights.sum())[order]


def _checked_count(looked_at: int | None, levels: int) -> int:
    """Return for how many papers each the types bid."""
    most = max(count for count in range(7) if levels**count < MOST_TYPES)
    if looked_at is None:
        return max(count for count in range(1, 7) if count == 1 or levels**count <= USUAL_TYPES)
    if not 1 <= looked_at <= most:
        raise InputError(
            f"With {levels} levels of bids, types are about 1 to {most} papers of each reviewer, so that there are "
            f"at most {MOST_TYPES}; got {looked_at}."
        )
    return looked_at


def _candidates(
    known: Any, places: Mapping[str, int], papers: Sequence[str], conflicts: Iterable[tuple[str, str]], count: int
) -> IntArray:
    """Return the papers of each reviewer's highest affinities, without conflicts: all of it public."""
    found = np.full((known.shape[0], count), -1, dtype=np.int64)
    columns = {name: place for place, name in enumerate(papers)}
    excluded: dict[int, list[int]] = {}
    for reviewer, paper in conflicts:
        if reviewer in places and paper in columns:
            excluded.setdefault(places[reviewer], []).append(columns[paper])
    for number in range(known.shape[0]):
        span = slice(*known.indptr[number : number + 2])
        here, score = known.indices[span], known.data[span]
        open_ones = np.flatnonzero((score > 0) & ~np.isin(here, excluded.get(number, [])))
        best = open_ones[np.argsort(-score[open_ones], kind="stable")[:count]]
        found[number, : len(best)] = here[best]
    return found


def _grid(candidates: IntArray) -> tuple[IntArray, IntArray]:
    """Return row and column of every candidate, 0 in place of none."""
    rows = np.repeat(np.arange(len(candidates)), candidates.shape[1])
    return rows, np.maximum(candidates.ravel(), 0)
