"""A synthetic conference: reviewers and papers with their areas, for use without real records.

Areas, their popularity and their groups were set by hand; no real expertise is in them. Nothing in
here knows utilities or matchings.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from palmatch.errors import InputError

Marks: TypeAlias = NDArray[np.uint8]

# Set by hand: groups of areas with their popularity, and how many areas papers and reviewers have.
GROUPS, BREADTHS = tomllib.loads(Path(__file__).with_name("conference.toml").read_text(encoding="utf-8")).values()


@dataclass(frozen=True, slots=True, eq=False)
class Conference:
    """The areas that reviewers know, and that papers are about.

    Attributes
    ----------
    areas
        The names of the A subject areas.
    reviewers
        1 where a reviewer knows an area, else 0; shape (reviewers, A). Every reviewer knows at least one.
    papers
        1 where a paper is about an area, else 0; shape (papers, A). Every paper is about at least one.
    """

    areas: tuple[str, ...]
    reviewers: Marks
    papers: Marks


def conference(*, seed: int = 0, reviewers: int = 189, papers: int = 73) -> Conference:
    """Draw a conference; the same seed gives the same bytes.

    With more reviewers or papers the earlier ones stay as they were.

    Parameters
    ----------
    seed
        A whole number, not negative.
    reviewers, papers
        How many of each, at least 1.
    """
    for name, value, least in (("seed", seed, 0), ("reviewers", reviewers, 1), ("papers", papers, 1)):
        if value < least:
            raise InputError(f"{name}={value} is too small: give a whole number of at least {least}.")
    for_reviewers, for_papers = (np.random.Generator(np.random.PCG64(s)) for s in np.random.SeedSequence(seed).spawn(2))
    return Conference(
        areas=tuple(name for group in GROUPS for name in group),
        reviewers=_marks(for_reviewers, reviewers, breadth=BREADTHS[1]),
        papers=_marks(for_papers, papers, breadth=BREADTHS[0]),
    )


def _marks(generator: np.random.Generator, count: int, *, breadth: tuple[float, ...]) -> Marks:
    """Draw a breadth and a home group for each row, then that many areas, mostly of the home group."""
    popularity = np.array([weight for group in GROUPS for weight in group.values()])
    group_of = np.repeat(np.arange(len(GROUPS)), [len(group) for group in GROUPS])
    # One block of uniforms, row after row, so that a longer conference begins with the shorter one.
    uniforms = generator.random((count, 2 + len(popularity)))
    breadths = 1 + _pick(np.array(breadth), uniforms[:, 0])
    homes = _pick(np.array([sum(group.values()) for group in GROUPS]), uniforms[:, 1])
    # An area of one's own group is this much likelier than an equally popular one elsewhere.
    weights = popularity * np.where(group_of == homes[:, None], 8.0, 1.0)
    # The k earliest of exponential arrivals are k weighted draws without replacement.
    arrivals = -np.log1p(-uniforms[:, 2:]) / weights
    order = arrivals.argsort(axis=1, kind="stable")
    marks = np.zeros(arrivals.shape, dtype=np.uint8)
    np.put_along_axis(marks, order, np.arange(len(popularity)) < breadths[:, None], axis=1)
    return marks


def _pick(weights: NDArray[np.float64], uniforms: NDArray[np.float64]) -> NDArray[np.intp]:
    """Turn uniforms in [0, 1) into indices that are drawn in proportion to the weights."""
    limits = np.cumsum(weights)
    return np.asarray(np.searchsorted(limits[:-1], uniforms * limits[-1], side="right"), dtype=np.intp)
