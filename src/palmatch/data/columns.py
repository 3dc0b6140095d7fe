"""Checks the cells of a `Sheet` and turns columns into ids, numbers and marks.

Each function reads a whole column at once and refuses it at its first wrong cell, in one sentence that says
where the cell is, what it holds and what it should hold. Which columns a file must have is not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from palmatch.data.files import Sheet, listed
from palmatch.errors import InputError

DECIMAL_COMMA = r"^[+-]?\d*,\d+$"
LONGEST_SHOWN = 40

# The largest capacity or demand: a number above it is a mistake.
MOST_UNITS = 1_000_000_000


def find_column(sheet: Sheet, *synonyms: str) -> int | None:
    """Position of the one column with one of these names, in whatever case; None if there is none."""
    found = [position for position, name in enumerate(sheet.names) if name.casefold() in synonyms]
    if len(found) > 1:
        names = listed([sheet.names[position] for position in found])
        raise InputError(f"{sheet.heading}: found the columns {names} for {synonyms[0]!r}, expected one; keep one.")
    return found[0] if found else None


def need_column(sheet: Sheet, *synonyms: str) -> int:
    """Like `find_column`, but a file without the column is refused."""
    position = find_column(sheet, *synonyms)
    if position is None:
        names = " or ".join(repr(name) for name in synonyms)
        header = "" if sheet.lines is None else ", and the first line must name the columns"
        raise InputError(
            f"{sheet.heading}: found the columns {listed(header_words(sheet.names))}, expected one called {names}; "
            f"rename or add it{header}."
        )
    return position


def header_words(names: Sequence[str]) -> list[str]:
    """Return the names of a header for a message: a file without one has private values where its names should be."""
    # One value among them says that it is no header, and then what looks like a name may be private as well.
    return list(names) if all(not name or _is_name(name) for name in names) else ["(a value)"] * len(names)


def _is_name(text: str) -> bool:
    """Say whether a text may be the name of a column: it begins with a letter and holds few digits."""
    digits = sum(letter.isdigit() for letter in text)
    return text[:1].isalpha() and digits <= 4


def refuse(
    sheet: Sheet,
    column: int,
    *,
    where: ArrayLike,
    expected: str,
    advice: str = "correct the cell",
    public: bool = False,
) -> None:
    """Raise for the first row where something is wrong, and say how many more there are."""
    rows = np.flatnonzero(np.asarray(where))
    if rows.size:
        row, more = int(rows[0]), rows.size - 1
        raise complaint(sheet, column, row=row, more=more, expected=expected, advice=advice, public=public)


def complaint(
    sheet: Sheet, column: int, *, row: int, more: int = 0, expected: str, advice: str, public: bool = False
) -> InputError:
    """One sentence about one cell; its value is quoted only where it is public, since messages end up in logs."""
    others = f" (and {more} more like it)" if more else ""
    found = (_quoted if public else _kind)(sheet.columns[column][row])
    return InputError(
        f"{sheet.source}, {sheet.place(row)}, column {sheet.names[column]!r}: found {found}{others}, "
        f"expected {expected}; {advice}."
    )


def _quoted(value: Any) -> str:
    if value is None or not str(value).strip():
        return "an empty cell"
    text = str(value).strip()
    shown = text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "..."
    return repr(shown) if isinstance(value, str) else shown


def _kind(value: Any) -> str:
    """Say what kind of thing a cell holds, and not the thing itself."""
    if value is None or not str(value).strip():
        return "an empty cell"
    try:
        number = float(str(value).replace("_", "x"))  # Python's thousands separator, which no file may use
    except ValueError:
        return "a text that is no number"
    return "no finite number" if not np.isfinite(number) else "a number that does not fit"


def not_used(source: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return a note about columns that are not used, if there are any: misspelt optional ones show there."""
    return (f"Not used of {source}: {listed(names)}.",) if names else ()


def unused(sheet: Sheet, *known: str) -> tuple[str, ...]:
    """Return a note about the columns that have none of the known names."""
    places = {find_column(sheet, name) for name in known}
    return not_used(sheet.source, [name for place, name in enumerate(sheet.names) if place not in places])


def texts(sheet: Sheet, column: int) -> pl.Series:
    """Return a column as stripped text; whole numbers are spelt out, missing values are empty."""
    series = sheet.columns[column]
    kind = series.dtype
    if not (kind in (pl.String, pl.Categorical, pl.Enum, pl.Null) or kind.is_integer()):
        raise _wrong_kind(sheet, column, expected="text or whole numbers")
    return series if sheet.trimmed else series.cast(pl.String).fill_null("").str.strip_chars()


def _wrong_kind(sheet: Sheet, column: int, *, expected: str) -> InputError:
    return InputError(
        f"{sheet.source}, column {sheet.names[column]!r}: found values of type "
        f"{sheet.columns[column].dtype}, expected {expected}; convert the column."
    )


class DistinctIds(tuple[str, ...]):
    """Ids that were found to be different from each other, so that this need not be looked at again."""

    __slots__ = ()


def filled_texts(sheet: Sheet, column: int, *, expected: str) -> tuple[str, ...]:
    """Texts of which none may be empty or hold what cannot be printed on one line."""
    return tuple(filled_series(sheet, column, expected=expected).to_list())


def filled_series(sheet: Sheet, column: int, *, expected: str) -> pl.Series:
    """Return `filled_texts` as a column."""
    values = texts(sheet, column)
    refuse(sheet, column, where=values == "", expected=expected, advice="fill it in", public=True)
    if sheet.trimmed:
        return values
    # An id with a line break in it (Parquet allows it) could not be written to CSV and found again.
    odd = values.str.contains(r"\p{Cc}")
    refuse(
        sheet, column, where=odd, expected=f"{expected} without control characters", advice="take them out", public=True
    )
    return values


def run_starts(sheet: Sheet, *columns: int) -> NDArray[np.int64]:
    """Return the rows that differ in one of some columns from the row before: rows of one thing mostly follow."""
    differs = np.zeros(len(sheet.columns[0]), dtype=np.bool_)
    differs[:1] = True
    for series in (sheet.columns[column] for column in columns):
        differs |= series.ne_missing(series.shift(1)).to_numpy()
    return np.flatnonzero(differs)


def with_rows(sheet: Sheet, column: int, rows: NDArray[np.int64]) -> Sheet:
    """Return a sheet of which one column has some rows only."""
    some = (series[rows] if place == column else series for place, series in enumerate(sheet.columns))
    return replace(sheet, columns=tuple(some))


def filled_runs(sheet: Sheet, column: int, rows: NDArray[np.int64], *, expected: str) -> pl.Series:
    """Return `filled_series` of some rows, each of which begins a run of rows with the same cell."""
    try:
        return filled_series(with_rows(sheet, column, rows), column, expected=expected)
    except InputError:
        # Which row is wrong, and how many more, is told from all of them.
        filled_series(sheet, column, expected=expected)
        raise


def identifiers(sheet: Sheet) -> DistinctIds:
    """Return the `id` column: none empty, none twice."""
    column = need_column(sheet, "id")
    return _each_once(sheet, column, filled_series(sheet, column, expected="an id"))


def identifiers_or_numbers(sheet: Sheet) -> DistinctIds:
    """Return the `id` column, or row numbers where there is none: for what comes from Python."""
    if find_column(sheet, "id") is None:
        return DistinctIds(map(str, range(len(sheet.columns[0]))))
    return identifiers(sheet)


def _each_once(sheet: Sheet, column: int, series: pl.Series) -> DistinctIds:
    ids, hashes = DistinctIds(series.to_list()), np.sort(series.hash().to_numpy())
    # Different hashes are those of different ids, and are found sooner.
    if (hashes[1:] == hashes[:-1]).any() and len(again := (~series.is_first_distinct()).arg_true()):
        second = int(again[0])
        first = ids.index(ids[second])
        raise InputError(
            f"{sheet.source}, {sheet.place(second)}, column {sheet.names[column]!r}: found the id "
            f"{ids[second]!r} again after {sheet.place(first)}, expected each id once; rename "
            "or remove one of the two."
        )
    return ids


def numbers(
    sheet: Sheet, column: int, *, expected: str, may_be_empty: bool = False, public: bool = False
) -> NDArray[np.float64]:
    """Return a column of numbers, with NaN for an empty cell where a cell may be empty."""
    series = sheet.columns[column]
    if series.dtype.is_numeric():
        parsed = series.cast(pl.Float64)
    elif series.dtype in (pl.String, pl.Null):
        parsed = texts(sheet, column).cast(pl.Float64, strict=False)
    else:
        raise _wrong_kind(sheet, column, expected="numbers")
    values = parsed.to_numpy().astype(np.float64)
    doubtful = np.isnan(values)
    # Wide tables have thousands of columns, nearly all of them without a doubtful cell to look into.
    if doubtful.any():
        _check_doubtful(sheet, column, doubtful=doubtful, expected=expected, may_be_empty=may_be_empty, public=public)
    return values


def _check_doubtful(
    sheet: Sheet, column: int, *, doubtful: NDArray[np.bool_], expected: str, may_be_empty: bool, public: bool
) -> None:
    """Tell apart the cells that gave no number: a decimal comma, some other text, nothing."""
    series = sheet.columns[column]
    empty = series.is_null()
    if series.dtype == pl.String:
        written = texts(sheet, column)
        empty = written == ""
        comma = written.str.contains(DECIMAL_COMMA)
        advice = "write decimals with a point, not a comma"
        refuse(sheet, column, where=comma, expected=expected, advice=advice, public=public)
    # A missing number of a frame is NaN, not an empty text.
    filled = ~empty.to_numpy() & ~(may_be_empty & series.dtype.is_float())
    refuse(sheet, column, where=doubtful & filled, expected=expected, public=public)
    if not may_be_empty:
        refuse(sheet, column, where=empty, expected=expected, advice="fill it in")


def epsilons(sheet: Sheet, column: int | None) -> NDArray[np.float64] | None:
    """Return each agent's own budget, NaN where the cell is empty; None for a file without the column."""
    if column is None:
        return None
    expected = "a privacy budget of 0 or more (inf for none, an empty cell for the default)"
    values = numbers(sheet, column, expected=expected, may_be_empty=True, public=True)
    refuse(sheet, column, where=values < 0, expected=expected, public=True)
    return values


def unit_counts(sheet: Sheet, name: str) -> NDArray[np.float64] | None:
    """Return a column of capacities or demands, NaN where the cell is empty; None for a file without the column."""
    column = find_column(sheet, name)
    if column is None:
        return None
    expected = f"a whole number from 0 to {MOST_UNITS:,} (an empty cell for the default)"
    values = numbers(sheet, column, expected=expected, may_be_empty=True, public=True)
    wrong = ~np.isnan(values) & ~((values >= 0) & (values == np.floor(values)) & (values <= MOST_UNITS))
    refuse(sheet, column, where=wrong, expected=expected, public=True)
    return values


def marks(sheet: Sheet, column: int) -> NDArray[np.uint8]:
    """Return a column of 0 and 1, or false and true."""
    series = sheet.columns[column]
    if series.dtype == pl.Boolean or series.dtype.is_numeric():
        # As floats, because a whole-number column may hold 257, which is 1 in a byte.
        values = series.cast(pl.Float64)
    elif series.dtype in (pl.String, pl.Null):
        meanings = {"0": 0.0, "1": 1.0, "false": 0.0, "true": 1.0}
        values = texts(sheet, column).str.to_lowercase().replace_strict(meanings, default=None, return_dtype=pl.Float64)
    else:
        raise _wrong_kind(sheet, column, expected="0 or 1")
    wrong = ~values.is_in([0.0, 1.0]).fill_null(False)
    refuse(sheet, column, where=wrong, expected="0 or 1")
    return values.cast(pl.UInt8).to_numpy().astype(np.uint8)
