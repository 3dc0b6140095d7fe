"""Regions and possible types of reviewers, derived from public records: an archive of scores, or a taxonomy of topics.

Nothing in here takes a file of the agents that are to be matched, so that regions and types cannot depend on what is
private to them. The records are named in what is written, and from there in the guarantee.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import scipy
from numpy.typing import NDArray

from palmatch.data.files import (
    FilePath,
    Sheet,
    complaint,
    filled_texts,
    find_column,
    listed,
    need_column,
    standard_input,
    texts,
)
from palmatch.data.scores import Scores
from palmatch.errors import InputError
from palmatch.mechanisms.response import cluster_centres, nearest_centre
from palmatch.problem import FloatArray, IntArray

# Rows of many papers are compared in so many random directions, which keep distances to a few per cent.
_DIRECTIONS = 48

# What stands between several topics of a paper.
_SEPARATOR = ";"


@dataclass(frozen=True, slots=True, eq=False)
class Derived:
    """Possible types, one after the other.

    Attributes
    ----------
    regions, names, representative:
        Region and name of each type, and whether it stands for its region.
    scores:
        What each type's score for each paper is, shape (types, papers).
    region_of:
        The region of each user of an archive; empty for a taxonomy, of which a reviewer declares a branch.
    """

    regions: tuple[str, ...]
    names: tuple[str, ...]
    representative: NDArray[np.bool_]
    scores: FloatArray
    region_of: dict[str, str]

    def columns(self, papers: Sequence[str], source: str) -> dict[str, Any]:
        """Return what `palmatch.domains.table.read_types` reads: a row for each score that is not 0."""
        # A type without any score has a row all the same.
        shown = self.scores != 0
        shown[~shown.any(axis=1), 0] = True
        place, paper = np.nonzero(shown)
        rows = place.tolist()
        return {
            "region": [self.regions[row] for row in rows],
            "type": [self.names[row] for row in rows],
            "paper": [papers[column] for column in paper.tolist()],
            "score": self.scores[place, paper],
            "representative": self.representative[place].astype(np.int64),
            "source": [source] * len(rows),
        }


def named_source(path: FilePath, archive: Scores | None = None) -> str:
    """Return the name of a public record with the beginning of its SHA-256, by which it can be told from others.

    Of an archive of scores it has that of the scores as well, which is the same for files with the same scores.
    """
    scores = "" if archive is None else f"; of its scores {scores_digest(archive)}"
    return f"{Path(path).name} (SHA-256 {digest(path)}{scores})"


def digest(path: FilePath) -> str:
    """Return the beginning of a file's SHA-256; of the standard input's for `-`."""
    raw = standard_input() if str(path) == "-" else Path(path).read_bytes()
    return sha256(raw).hexdigest()[:16]


def scores_digest(scores: Scores) -> str:
    """Return the beginning of the SHA-256 of all scores that are not 0, by user and paper, whatever their order was."""
    rows = scores.rows.tocsr(copy=True)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    users = _by_id(scores.users, np.diff(rows.indptr) > 0)
    papers = _by_id(scores.papers, np.bincount(rows.indices, minlength=rows.shape[1]) > 0)
    rows = rows[users][:, papers]
    rows.sort_indices()
    ids = [[scores.users[place] for place in users], [scores.papers[place] for place in papers]]
    found = sha256(json.dumps(ids).encode())
    for part, kind in ((rows.indptr, "<i8"), (rows.indices, "<i8"), (rows.data, "<f8")):
        found.update(np.ascontiguousarray(part, dtype=kind).data)
    return found.hexdigest()[:16]


def _by_id(ids: Sequence[str], some: NDArray[np.bool_]) -> IntArray:
    return np.array(sorted(np.flatnonzero(some).tolist(), key=ids.__getitem__), dtype=np.int64)


# --- topics -----------------------------------------------------------------------------------------------


def topics_of(sheet: Sheet) -> tuple[tuple[str, ...], ...] | None:
    """Return the topics of each row: the column `topic`, with semicolons between several; None where there is none."""
    column = find_column(sheet, "topic")
    if column is None:
        return None
    found = [
        tuple(dict.fromkeys(part.strip() for part in text.split(_SEPARATOR) if part.strip()))
        for text in texts(sheet, column).to_list()
    ]
    bare = [row for row, some in enumerate(found) if not some]
    if bare:
        raise complaint(
            sheet, column, row=bare[0], more=len(bare) - 1, expected="a topic", advice="fill it in", public=True
        )
    return tuple(found)


def _of_topics(by_topic: FloatArray, topics: Mapping[str, int], papers: Sequence[Sequence[str]]) -> FloatArray:
    """Return scores of papers from scores of topics: those of the best of a paper's topics."""
    scores = np.zeros((len(by_topic), len(papers)))
    for place, own in enumerate(papers):
        known = [topics[topic] for topic in own if topic in topics]
        if known:
            scores[:, place] = by_topic[:, known].max(axis=1)
    return scores


# --- an archive of scores ---------------------------------------------------------------------------------


def from_scores(
    archive: Scores,
    *,
    regions: int = 1,
    most_types: int = 64,
    archive_topics: Sequence[Sequence[str]] | None = None,
    topics: Sequence[Sequence[str]] | None = None,
) -> Derived:
    """Return regions of users with similar scores, and in each the scores that its possible types have.

    Parameters
    ----------
    archive:
        Public scores: of the papers to be matched, or of other papers, such as last year's, with `archive_topics`.
    regions:
        How many regions; fewer where there are fewer different users.
    most_types:
        How many types a region has at most: of more users, those in the middle of groups of similar ones are taken.
    archive_topics, topics:
        The topics of the archive's papers and of those to be matched; a type's score of a paper is then its mean
        score in the archive of papers with the topic, of several topics the largest.
    """
    if regions < 1 or most_types < 1:
        raise InputError(f"Expected at least 1 region and 1 type, got {regions} regions and {most_types} types.")
    if archive_topics is None or topics is None:
        compared, names = _projected(archive.rows), None
    else:
        by_topic, place = _by_topic(archive.rows, archive_topics)
        strange = sorted({topic for own in topics for topic in own} - set(place))
        if strange:
            raise InputError(
                f"Found papers of the topics {listed(strange)}, which no paper of the archive has; expected topics of "
                "the archive, since nothing public is known of others."
            )
        compared, names = by_topic, list(place)
    count = min(regions, len(np.unique(compared, axis=0)))
    cell = nearest_centre(compared, cluster_centres(compared, count, np.ones(len(compared))))
    labels = _labels(compared, cell, names)
    chosen, of_type, standing = [], [], []
    for number, label in enumerate(labels):
        members = np.flatnonzero(cell == number)
        types = members[_medoids(compared[members], most_types)]
        middle = compared[members].mean(axis=0)
        chosen += types.tolist()
        of_type += [label] * len(types)
        standing += [row == int(np.argmin(((compared[types] - middle) ** 2).sum(axis=1))) for row in range(len(types))]
    if archive_topics is None or topics is None:
        table = archive.rows[np.array(chosen)].toarray()
    else:
        table = _of_topics(by_topic[chosen], place, topics)
    return Derived(
        regions=tuple(of_type),
        names=tuple(archive.users[row] for row in chosen),
        representative=np.array(standing),
        scores=table,
        region_of={user: labels[int(number)] for user, number in zip(archive.users, cell, strict=True)},
    )


def _projected(rows: Any) -> FloatArray:
    """Return rows in few dimensions, in which their distances are about the same; always the same ones."""
    if rows.shape[1] <= _DIRECTIONS:
        return np.asarray(rows.toarray(), dtype=np.float64)
    directions = np.random.default_rng(0).standard_normal((rows.shape[1], _DIRECTIONS)) / np.sqrt(_DIRECTIONS)
    return np.asarray(rows @ directions, dtype=np.float64)


def _by_topic(rows: Any, topics: Sequence[Sequence[str]]) -> tuple[FloatArray, dict[str, int]]:
    """Return each user's mean score of the papers of each topic that it has a score for, and the topics' places."""
    place = {topic: number for number, topic in enumerate(sorted({topic for own in topics for topic in own}))}
    pairs = np.array([(paper, place[topic]) for paper, own in enumerate(topics) for topic in own], dtype=np.int64)
    marks = scipy.sparse.csr_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(len(topics), len(place)))
    sums, counts = (rows @ marks).toarray(), ((rows != 0).astype(np.float64) @ marks).toarray()
    return np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0), place


def _medoids(rows: FloatArray, most: int) -> IntArray:
    """Return rows that stand for all of them: each different one, or the medoids of `most` clusters."""
    different = np.sort(np.unique(rows, axis=0, return_index=True)[1])
    if len(different) <= most:
        return different
    centres = cluster_centres(rows, most, np.ones(len(rows)))
    nearest = [int(np.argmin(((rows - centre) ** 2).sum(axis=1))) for centre in centres]
    return np.array(sorted(set(nearest)), dtype=np.int64)


def _labels(rows: FloatArray, cell: IntArray, topics: list[str] | None) -> list[str]:
    """Return a name for each group: the topic in which it differs most from all, or a number."""
    count, labels = int(cell.max()) + 1, list[str]()
    for number in range(count):
        name = str(number + 1)
        if topics is not None:
            apart = rows[cell == number].mean(axis=0) - rows.mean(axis=0)
            name = "all" if count == 1 else topics[int(np.argmax(apart))]
        labels.append(name if name not in labels else f"{name} {number + 1}")
    return labels


# --- a taxonomy -------------------------------------------------------------------------------------------


def is_taxonomy(sheet: Sheet) -> bool:
    """Say whether a sheet has the columns `topic` and `parent`."""
    return {"topic", "parent"} <= {name.casefold() for name in sheet.names}


def from_taxonomy(sheet: Sheet, papers: Sequence[Sequence[str]]) -> Derived:
    """Return a region for each topic without a parent, with the topics below it, and itself, as possible types.

    The score of a type for a paper is the similarity of two topics by Wu and Palmer, twice the depth of their lowest
    common ancestor over the sum of their depths; 0 in another branch, and the largest over the paper's topics.
    """
    above = _chains(sheet)
    strange = sorted({topic for own in papers for topic in own} - set(above))
    if strange:
        raise InputError(f"Found papers of the topics {listed(strange)}, which {sheet.source} does not have; add them.")
    order = sorted(above, key=lambda topic: (above[topic][0], len(above[topic]), topic))
    place = {topic: number for number, topic in enumerate(order)}
    similar = np.array([[_similarity(above[one], above[other]) for other in order] for one in order])
    return Derived(
        regions=tuple(above[topic][0] for topic in order),
        names=tuple(order),
        representative=np.array([len(above[topic]) == 1 for topic in order]),
        scores=_of_topics(similar, place, papers),
        region_of={},
    )


def _chains(sheet: Sheet) -> dict[str, tuple[str, ...]]:
    """Return the topics from the branch down to each topic, itself included."""
    column = need_column(sheet, "parent")
    names = filled_texts(sheet, need_column(sheet, "topic"), expected="the name of a topic")
    again = ~pl.Series(names, dtype=pl.String).is_first_distinct().to_numpy()
    if again.any():
        row = int(np.flatnonzero(again)[0])
        raise InputError(f"{sheet.source}, {sheet.place(row)}: found the topic {names[row]!r} twice, expected it once.")
    parent = dict(zip(names, texts(sheet, column).to_list(), strict=True))
    chains = {}
    for row, name in enumerate(names):
        chain = [name]
        while parent[chain[-1]]:
            above = parent[chain[-1]]
            if above not in parent or above in chain:
                expected = "a topic of the file, or an empty cell" if above not in parent else "no circle of parents"
                raise complaint(sheet, column, row=row, expected=expected, advice="correct it", public=True)
            chain.append(above)
        chains[name] = tuple(reversed(chain))
    return chains


def _similarity(one: tuple[str, ...], other: tuple[str, ...]) -> float:
    common = 0
    while common < min(len(one), len(other)) and one[common] == other[common]:
        common += 1
    return 2 * common / (len(one) + len(other))
