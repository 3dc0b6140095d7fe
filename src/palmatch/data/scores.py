"""Scores of users for papers, as programs for conferences keep them, read and checked.

openreview-matcher has rows `paper,user,score`, constraints `paper,user,-1|0|1` and `user,max_papers`, all without a
header (one is accepted). perturbed-maximization has one line with the numbers of papers and of reviewers, and a line
of similarities for each paper. OpenReview has edges from a paper (head) to a user (tail) with a weight or a label, in
JSON; HotCRP columns `paper`, `email` and `preference`, and `paper`, `action` and `email` for conflicts and reviews.
What a score is used for is not known here; nothing of size users x papers is made.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, TypeAlias

import numpy as np
import polars as pl
import scipy
from numpy.typing import NDArray

from palmatch.data.files import (
    MOST_UNITS,
    DistinctIds,
    FilePath,
    Sheet,
    complaint,
    filled_runs,
    filled_series,
    filled_texts,
    listed,
    need_column,
    numbers,
    read_lines,
    read_sheet,
    refuse,
    run_starts,
    with_header,
)
from palmatch.errors import InputError

Range: TypeAlias = tuple[float, float]

# A user's score for a paper that no row mentions, as in openreview-matcher.
UNLISTED = 0.0

MATRIX_SUFFIX = ".in"
# The utility of the lowest score: what is hardly wanted is still better than going without.
FLOOR = 0.01

SCORE_COLUMNS = ("paper", "user", "score")
_CONSTRAINTS = ("paper", "user", "constraint")
# What HotCRP calls them.
_SYNONYMS = {"paper": "pid", "user": "email", "score": "preference"}
_REVIEWS = ("review", "primary", "secondary", "pcreview", "external")

# What openreview-py takes the label of a bid for.
_LABELS = {"Very High": 1.0, "High": 0.5, "Neutral": 0.0, "Low": -0.5, "Very Low": -1.0}


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """What each user's score for each paper is.

    Attributes
    ----------
    source
        The file or files they come from.
    users, papers
        Ids, each once.
    rows
        Scores, shape (users, papers); what is not stored is 0.
    """

    source: str
    users: tuple[str, ...]
    papers: tuple[str, ...]
    rows: Any


def as_utility(scores: Any, bounds: Range) -> Any:
    """Return utilities in (0, 1] of scores: a public function of the score alone, the same for every user."""
    low, high = bounds
    return FLOOR + (1 - FLOOR) * (scores - low) / (high - low)


def as_score(utilities: Any, bounds: Range) -> Any:
    """Return the scores of which `as_utility` makes these utilities, to 12 digits of the range.

    Examples
    --------
    >>> float(as_score(as_utility(-0.5, (-1, 1)), (-1, 1)))
    -0.5
    """
    low, high = bounds
    found = low + (high - low) * (utilities - FLOOR) / (1 - FLOOR)
    # A utility has about 16 digits, of which converting a score back and forth loses one or two. Adding 0.0 turns -0.0
    # into 0.0.
    return np.round(found, 12 - math.ceil(math.log10(high - low))) + 0.0


def is_scores(sheet: Sheet) -> bool:
    """Say whether a sheet that was read without a header holds rows paper, user, score."""
    named = _named(sheet, SCORE_COLUMNS)
    if named or sheet.lines is None or len(sheet.columns) != len(SCORE_COLUMNS):
        return named
    return _is_number(sheet.columns[2][0])


def is_score_file(path: FilePath) -> bool:
    """Say whether a file holds scores rather than a table with a header."""
    source = os.fspath(path)
    return source.lower().endswith((MATRIX_SUFFIX, ".json")) or is_scores(read_sheet(path, header=False, begin=True))


def read_scores(
    paths: Sequence[FilePath],
    *,
    weights: Sequence[float] | None = None,
    bounds: Range = (0.0, 1.0),
    papers: Sequence[str] | None = None,
    listed_in: str = "",
) -> Scores:
    """Read one or more files of scores, and add them up by their weights.

    Parameters
    ----------
    paths
        Files with rows paper, user, score, or of matrices (.in).
    weights
        One each, above 0; all the same unless given. They are divided by their sum, so that bounds stay the same.
    bounds
        The smallest and largest score that a file may hold: public, and not computed from the scores.
    papers
        The ids of all papers; those that the files mention unless given.
    listed_in
        Where `papers` come from, for messages.

    Raises
    ------
    InputError
        With file, line and column, if any cell cannot be used.
    """
    low, high = bounds
    if not low <= UNLISTED <= high or not 0 < high - low < math.inf:
        raise InputError(
            f"Expected finite bounds of scores around 0, the score of a pair without a row, got {low:g},{high:g}."
        )
    shares = np.ones(len(paths)) if weights is None else np.asarray(weights, dtype=np.float64)
    if len(shares) != len(paths) or not ((shares > 0) & np.isfinite(shares)).all():
        raise InputError(f"Expected one weight above 0 for each of {len(paths)} files of scores, got {len(shares)}.")
    files = [_read(path, bounds, checked=papers is None) for path in paths]
    users = DistinctIds(pl.concat([file.users for file in files]).unique().sort().to_list())
    known = pl.concat([file.every_paper for file in files]).unique().sort().to_list() if papers is None else papers
    parts = [_rows(file, users, known, listed_in) for file in files]
    weighed = (share * part for part, share in zip(parts, shares / shares.sum(), strict=True))
    rows = parts[0] if len(parts) == 1 else reduce(add, weighed)
    return Scores(", ".join(os.fspath(path) for path in paths), users, tuple(known), rows)


def with_users(scores: Scores, users: Iterable[str]) -> Scores:
    """Return the scores of these users as well, who have the score 0 for every paper where they are not there yet."""
    missing = set(users).difference(scores.users)
    if not missing:
        return scores
    own = scores.rows.tocsr()
    start = np.append(own.indptr, np.full(len(missing), own.indptr[-1]))
    every = (*scores.users, *missing)
    rows = scipy.sparse.csr_array((own.data, own.indices, start), shape=(len(every), own.shape[1]))
    # By id like all others: pairs are published in this order, and a place at the end would tell of no score.
    order = sorted(range(len(every)), key=every.__getitem__)
    return replace(scores, users=DistinctIds(every[place] for place in order), rows=rows[order])


@dataclass(frozen=True, slots=True, eq=False)
class _File:
    """One file's scores, before ids are numbered: `papers[n]` has the score `values[n]`.

    `users[n]` has the next `lengths[n]` scores, and perhaps others later. `every_paper` are the ids that the file
    mentions, perhaps several times; `sheet` is None for a matrix.
    """

    source: str
    papers: pl.Series
    users: pl.Series
    lengths: NDArray[np.int64]
    values: NDArray[np.float64]
    every_paper: pl.Series
    sheet: Sheet | None = None


def _read(path: FilePath, bounds: Range, *, checked: bool) -> _File:
    """Read a file; ids of papers as they stand there, or checked."""
    source = os.fspath(path)
    if source.lower().endswith(MATRIX_SUFFIX):
        return _matrix(source, bounds)
    if source.lower().endswith(".json"):
        return _edge_scores(source, bounds)
    sheet = named_columns(read_sheet(path, header=False), SCORE_COLUMNS)
    if sheet.columns[2].dtype == pl.String:
        # HotCRP has a reviewer's expertise behind its preference.
        plain = sheet.columns[2].str.replace(r"^(-?\d+)[XYZ]$", "$1")
        sheet = replace(sheet, columns=(*sheet.columns[:2], plain))
    papers = filled_series(sheet, 0, expected="an id") if checked else sheet.columns[0]
    first = run_starts(sheet, 1)
    users = filled_runs(sheet, 1, first, expected="an id")
    expected = f"a score from {bounds[0]:g} to {bounds[1]:g}"
    values = numbers(sheet, 2, expected=expected)
    outside = ~((values >= bounds[0]) & (values <= bounds[1]))
    refuse(sheet, 2, where=outside, expected=expected, advice="correct it, or say --score-range LOW,HIGH")
    return _File(source, papers, users, np.diff(first, append=len(values)), values, papers, sheet)


def read_edges(path: FilePath) -> list[tuple[str, str, float]]:
    """Read OpenReview's edges as (paper, user, weight): a list, `{"edges": [...]}`, or groups by head or tail."""
    told, found = read_json(path), []
    with suppress(AttributeError, KeyError, TypeError, ValueError):
        for group in told["edges"] if isinstance(told, dict) else told:
            for edge in group.get("values", [group]):
                whole = group["id"] | edge if "values" in group else edge
                weight = whole.get("weight")
                value = _LABELS[whole["label"]] if weight is None else float(weight)
                found.append((str(whole["head"]), str(whole["tail"]), value))
        return found
    raise InputError(
        f"{path}, edge {len(found) + 1}: expected OpenReview's edges with head (paper), tail (user) and a weight, or a "
        f"label of a bid ({', '.join(_LABELS)})."
    )


def _edge_scores(source: str, bounds: Range) -> _File:
    edges = read_edges(source)
    papers, users = (pl.Series([edge[side] for edge in edges], dtype=pl.String) for side in (0, 1))
    values = np.array([weight for *_, weight in edges], dtype=np.float64)
    outside = np.flatnonzero(~((values >= bounds[0]) & (values <= bounds[1])))
    if len(outside):
        raise InputError(
            f"{source}, edge {outside[0] + 1}: found a weight that does not fit, expected one from {bounds[0]:g} to "
            f"{bounds[1]:g}; correct it, or say --score-range LOW,HIGH."
        )
    if len(set(zip(papers, users, strict=True))) < len(edges):
        raise InputError(f"{source}: found several edges of one paper and user, expected one; keep one of them.")
    return _File(source, papers, users, np.ones(len(edges), dtype=np.int64), values, papers)


def _matrix(source: str, bounds: Range) -> _File:
    """Read the matrix of perturbed-maximization; ids are places from 0, as in its programs."""
    lines = "\n".join(read_lines(source)).rstrip().split("\n")
    sizes = _floats(source, lines[0], 1, 2, "two whole numbers, of papers and of reviewers")
    if (sizes < 1).any() or (sizes != np.floor(sizes)).any():
        raise InputError(f"{source}, line 1: expected two whole numbers above 0, of papers and of reviewers.")
    papers, users = sizes.astype(int).tolist()
    if len(lines) != papers + 1:
        raise InputError(
            f"{source}: found {len(lines) - 1:,} lines below the first one, expected {papers:,}, one a paper; "
            "complete the file, or correct its first line."
        )
    expected = f"{users:,} scores from {bounds[0]:g} to {bounds[1]:g}"
    table = np.array([_floats(source, line, row + 2, users, expected) for row, line in enumerate(lines[1:])])
    outside = np.argwhere(~((table >= bounds[0]) & (table <= bounds[1])))
    if len(outside):
        row, column = outside[0]
        raise InputError(
            f"{source}, line {row + 2}, column {column + 1}: found a number that does not fit, expected {expected}; "
            "correct it, or say --score-range LOW,HIGH."
        )
    of_papers, of_users = (pl.Series(map(str, range(count)), dtype=pl.String) for count in (papers, users))
    user, paper = np.nonzero(table.T)
    lengths = np.bincount(user, minlength=users)
    return _File(source, of_papers[paper], of_users, lengths, table[paper, user], of_papers)


def _floats(source: str, line: str, number: int, count: int, expected: str) -> NDArray[np.float64]:
    words = line.split()
    if len(words) != count:
        raise InputError(f"{source}, line {number}: found {len(words):,} cells, expected {expected}.")
    values = np.empty(count)
    for column, word in enumerate(words):
        try:
            values[column] = float(word)
        except ValueError:
            raise InputError(
                f"{source}, line {number}, column {column + 1}: found a text that is no number, expected {expected}."
            ) from None
    return values


def _rows(file: _File, users: Sequence[str], papers: Sequence[str], listed_in: str) -> Any:
    """Return a file's scores as a sparse table, refusing papers that there are not and pairs that occur twice."""
    user = places_of(file.users, users)
    if file.sheet is None:
        paper = places_of(file.papers, papers)
    else:
        paper = known_places(file.sheet, 0, papers, expected="an id")
    strange = np.flatnonzero(paper < 0)
    if len(strange):
        if file.sheet is None:
            raise InputError(
                f"{file.source} has the papers {listed(file.every_paper.unique().to_list())}; {listed_in} has others."
            )
        raise complaint(
            file.sheet, 0, row=int(strange[0]), more=len(strange) - 1, expected=f"a paper of {listed_in}",
            advice="add it there, or remove the row", public=True,
        )  # fmt: skip
    # Scores of a pair that occurs twice are added up.
    rows = sparse_rows(user, file.lengths, paper, file.values, shape=(len(users), len(papers)))
    if rows.nnz < len(paper) and file.sheet is not None:
        pair = np.repeat(user, file.lengths) * len(papers) + paper
        second = int(np.flatnonzero(~pl.Series(pair).is_first_distinct().to_numpy())[0])
        first = int(np.flatnonzero(pair == pair[second])[0])
        raise InputError(
            f"{file.source}, {file.sheet.place(second)}: found a score for the same paper and user as on "
            f"{file.sheet.place(first)}, expected one; keep one of them."
        )
    rows.eliminate_zeros()
    return rows


def sparse_rows(
    row_of_run: NDArray[np.int64],
    lengths: NDArray[np.int64],
    columns: NDArray[np.int64],
    values: NDArray[np.float64],
    *,
    shape: tuple[int, int],
) -> Any:
    """Return a sparse table of runs of entries, each of one row; what occurs twice is added up."""
    start = np.append(0, np.cumsum(lengths))
    if len(row_of_run) == shape[0] and not (np.bincount(row_of_run) > 1).any():
        # One run for each row: where its columns ascend, only runs have to be sorted.
        small = np.int32 if max(len(values), *shape) < 1 << 31 else np.int64
        runs = scipy.sparse.csr_array((values, columns.astype(small), start.astype(small)), shape=shape)
        if runs.has_canonical_format:
            return runs if (np.diff(row_of_run) > 0).all() else runs[np.argsort(row_of_run)]
    return scipy.sparse.csr_array((values, (np.repeat(row_of_run, lengths), columns)), shape=shape)


def known_places(sheet: Sheet, column: int, known: Sequence[str], *, expected: str) -> NDArray[np.int64]:
    """Return the place of each cell of a column among known ids; -1 where it is none of them."""
    if sheet.columns[column].dtype == pl.String:
        # Texts that are ids as they stand need not be trimmed and looked at.
        places = places_of(sheet.columns[column], known)
        if not (places < 0).any():
            return places
    return places_of(filled_series(sheet, column, expected=expected), known)


def places_of(names: pl.Series, known: Sequence[str]) -> NDArray[np.int64]:
    """Return the place of each name among `known`, which has each name once; -1 where it is not there."""
    found = names.cast(pl.Enum(known), strict=False).to_physical()
    return found.cast(pl.Int64).fill_null(-1).to_numpy()


# --- what belongs to it -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs (agent, resource) that must not be matched, and those that are matched beforehand."""

    conflicts: tuple[tuple[str, str], ...]
    fixed: tuple[tuple[str, str], ...] = ()


def read_pairs(path: FilePath) -> Pairs:
    """Read conflicts: a file with columns `agent` and `resource`, or constraints `paper,user,-1|0|1`.

    Of constraints, -1 is a conflict, 0 says nothing, and 1 is a pair that is matched before anything else.
    """
    if os.fspath(path).lower().endswith(".json"):
        found = read_edges(path)
        return Pairs(*(tuple((user, paper) for paper, user, told in found if told == value) for value in (-1, 1)))
    sheet = read_sheet(path, header=False)
    if _named(sheet, ("paper", "action", "user")):
        told = named_columns(sheet, ("paper", "action", "user"))
        papers, actions, users = (filled_texts(told, place, expected="a value") for place in range(3))
        rows = list(zip(users, papers, actions, strict=True))
        kinds = (("conflict",), _REVIEWS)
        return Pairs(*(tuple((user, paper) for user, paper, action in rows if action in kind) for kind in kinds))
    if len(sheet.columns) != len(_CONSTRAINTS) or not (is_scores(sheet) or _named(sheet, _CONSTRAINTS)):
        sheet = with_header(sheet)
        columns = [need_column(sheet, name) for name in ("agent", "resource")]
        agents, resources = (filled_texts(sheet, column, expected="an id") for column in columns)
        return Pairs(tuple(zip(agents, resources, strict=True)))
    sheet = named_columns(sheet, _CONSTRAINTS)
    papers, users = (filled_texts(sheet, column, expected="an id") for column in (0, 1))
    expected = "-1 (conflict), 0 (nothing) or 1 (matched beforehand)"
    # Not quoted, here and below: a file of scores may have been given in place of this one.
    values = numbers(sheet, 2, expected=expected)
    refuse(sheet, 2, where=~np.isin(values, (-1, 0, 1)), expected=expected)
    pairs = list(zip(users, papers, strict=True))
    return Pairs(*(tuple(pair for pair, told in zip(pairs, values, strict=True) if told == value) for value in (-1, 1)))


def read_assignments(path: FilePath) -> tuple[tuple[str, str], ...]:
    """Read pairs (user, paper) that were assigned, in any form in which they are written."""
    if os.fspath(path).lower().endswith(".json"):
        told = read_json(path)
        if isinstance(told, list):
            return tuple((user, paper) for paper, user, _ in read_edges(path))
        with suppress(AttributeError, KeyError, TypeError):
            return tuple((str(one["user"]), paper) for paper, users in told.items() for one in users)
        raise InputError(f'{path}: expected {{paper: [{{"user": …}}, …]}}, as openreview-matcher writes it.')
    pairs = read_pairs(path)
    return pairs.fixed or pairs.conflicts


def read_json(path: FilePath) -> Any:
    """Return what is in a file of JSON."""
    try:
        return json.loads("\n".join(read_lines(path)))
    except json.JSONDecodeError as error:
        raise InputError(f"{path}, line {error.lineno}, column {error.colno}: found no JSON; correct it.") from None


def read_users(path: FilePath) -> tuple[str, ...]:
    """Read ids of users, one a line."""
    return _each_user(named_columns(read_sheet(path, header=False), ("user",)))


def read_max_papers(path: FilePath) -> dict[str, int]:
    """Read `user,max_papers`: how many papers each user takes at most."""
    sheet = named_columns(read_sheet(path, header=False), ("user", "max_papers"))
    users = _each_user(sheet)
    expected = f"a whole number from 0 to {MOST_UNITS:,}"
    values = numbers(sheet, 1, expected=expected)
    possible = (values >= 0) & (values <= MOST_UNITS) & (values == np.floor(values))
    refuse(sheet, 1, where=~possible, expected=expected)
    return dict(zip(users, values.astype(int).tolist(), strict=True))


def read_regions(path: FilePath) -> dict[str, str]:
    """Read `user,region`: the public region of each user."""
    sheet = named_columns(read_sheet(path, header=False), ("user", "region"))
    return dict(zip(_each_user(sheet), filled_texts(sheet, 1, expected="the name of a region"), strict=True))


def _each_user(sheet: Sheet) -> tuple[str, ...]:
    users = filled_texts(sheet, 0, expected="the id of a user")
    again = ~pl.Series(users, dtype=pl.String).is_first_distinct().to_numpy()
    refuse(sheet, 0, where=again, expected="each user once", advice="keep one of the rows", public=True)
    return users


def named_columns(sheet: Sheet, names: tuple[str, ...]) -> Sheet:
    """Return the columns of a sheet that was read without a header, by their names, or by their place."""
    if _named(sheet, names):
        sheet = with_header(sheet)
        columns = [need_column(sheet, name, _SYNONYMS.get(name, name)) for name in names]
        return replace(sheet, names=names, columns=tuple(sheet.columns[place] for place in columns))
    if len(sheet.columns) != len(names):
        raise InputError(
            f"{sheet.source}: found {len(sheet.columns)} columns, expected {len(names)}: {', '.join(names)}, "
            "without a header; add or remove columns."
        )
    return replace(sheet, names=names)


def _named(sheet: Sheet, names: tuple[str, ...]) -> bool:
    """Say whether the columns have these names: in the first row, or, for Parquet, of their own."""
    found = sheet.names if sheet.lines is None else tuple(str(column[0]).strip() for column in sheet.columns)
    known = {name.casefold() for name in found}
    return all({name, _SYNONYMS.get(name, name)} & known for name in names)


def _is_number(cell: Any) -> bool:
    try:
        float(str(cell))
    except ValueError:
        return False
    return True
