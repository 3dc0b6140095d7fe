"""Reads the tables that a user brings (CSV, Parquet, data frames), checks their cells, and writes tables.

A table becomes a `Sheet`: named columns, and the line on which every row stands, so that a mistake can be shown where
it was made. Each check reads a whole column at once and refuses it at its first wrong cell, in one sentence that says
where the cell is, what it holds and what it should hold. No row is dropped or repaired: a file is read whole, or
refused. Which columns a file must have is not known here: the domains say it.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from palmatch.atomic import write_atomic
from palmatch.errors import InputError

FilePath = str | os.PathLike[str]

SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab"}
TEXT_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")

QUOTED_CELL = r'"(?:[^"]|"")*"'
# Characters of a text that are split into lines at a time, and bytes that are read or counted at a time.
_SPLIT_AT_A_TIME, _BYTES_AT_A_TIME = 1 << 26, 1 << 19

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
PARQUET_MAGIC = b"PAR1"
GZIP_MAGIC = b"\x1f\x8b"

# Formats whose files are often renamed to .csv by mistake, by their first bytes (magic numbers).
OTHER_FORMATS = {
    b"PK\x03\x04": "is an Excel workbook or a zip archive, not text; save the sheet as CSV (UTF-8)",
    b"\xd0\xcf\x11\xe0": "is an old Excel workbook, not text; save the sheet as CSV (UTF-8)",
    GZIP_MAGIC: "is compressed with gzip; give it a name that ends in .csv.gz",
    PARQUET_MAGIC: "is a Parquet file, not text; give it a name that ends in .parquet",
    b"\xff\xfe": "is UTF-16 text, expected UTF-8; save it as CSV (UTF-8)",
    b"\xfe\xff": "is UTF-16 text, expected UTF-8; save it as CSV (UTF-8)",
}


@dataclass(frozen=True, slots=True)
class Sheet:
    """A file's columns, before their meaning is looked at.

    Attributes
    ----------
    source
        The path as the user wrote it.
    heading
        Where the column names stand, to begin a message with.
    names
        The column names as written, without surrounding spaces.
    columns
        One series a name. From CSV they hold text, from Parquet whatever the file holds.
    lines
        Each row's physical line, the file's first line being 1; None for Parquet and for frames, which have rows but
        no lines.
    first_row
        What the first row is called where there are no lines: 1, or 0 for what comes from Python.
    """

    source: str
    heading: str
    names: tuple[str, ...]
    columns: tuple[pl.Series, ...]
    lines: NDArray[np.int64] | None
    first_row: int = 1

    def place(self, row: int) -> str:
        """Where a row stands in the user's file; rows of Parquet are counted from 1, those of Python from 0."""
        return f"row {row + self.first_row}" if self.lines is None else f"line {self.lines[row]}"


def read_sheet(path: FilePath, *, header: bool = True, begin: bool = False) -> Sheet:
    """Read a CSV (.csv, .tsv, also with .gz) or Parquet file whole, or say in one sentence why not.

    Without a header the first line of text is a row like any other, and columns are named by their place from 1. With
    `begin`, text is read up to its first line that is not blank, and Parquet up to its first row.
    """
    source = os.fspath(path)
    if source == "-":
        return _sheet_of_input(standard_input(), header=header)
    kind = source.lower()
    raw = _bytes_of(source, begin=begin and kind.endswith((".csv", ".tsv")))
    if not raw:
        raise _nothing_in(source, header=header)
    if kind.endswith(".parquet"):
        return _parquet_sheet(source, raw, rows=1 if begin else None)
    if not kind.endswith(TEXT_SUFFIXES):
        raise InputError(f"{source} ends in none of .csv, .csv.gz, .tsv, .parquet; save it as one of these.")
    text = _text_of(source, _uncompressed(source, raw) if kind.endswith(".gz") else raw)
    if begin:
        end = text.find(b"\n", len(text) - len(text.lstrip(b" \n")))
        text = text if end < 0 else text[:end]
    return _text_sheet(source, text, header=header)


def standard_input() -> bytes:
    """Return all of the standard input, and leave it to be read again: what kind of file it is decides who reads it."""
    raw = sys.stdin.buffer.read()
    sys.stdin = io.TextIOWrapper(io.BytesIO(raw))
    return raw


def read_lines(path: FilePath) -> list[str]:
    """Read a text file into its lines, or say in one sentence why not."""
    source = os.fspath(path)
    raw = _bytes_of(source)
    if not raw.strip():
        raise InputError(f"{source} is empty.")
    return _text_of(source, raw).decode().split("\n")


def with_header(sheet: Sheet) -> Sheet:
    """Return a sheet that was read without a header, its first row taken for the names of the columns."""
    if sheet.lines is None:
        return sheet
    names = tuple(_clean(str(column[0])) for column in sheet.columns)
    if len(sheet.lines) < 2:
        raise InputError(
            f"{sheet.source} has a header but no rows; expected at least one row below line {sheet.lines[0]}."
        )
    columns, heading = tuple(column.slice(1) for column in sheet.columns), f"{sheet.source}, line {sheet.lines[0]}"
    return replace(sheet, heading=heading, names=names, columns=columns, lines=sheet.lines[1:])


def _nothing_in(source: str, *, header: bool) -> InputError:
    if header:
        return InputError(f"{source} is empty; expected a line of column names and at least one row.")
    return InputError(f"{source} is empty; expected at least one row: leave the file out if there is nothing in it.")


def _sheet_of_input(raw: bytes, *, header: bool) -> Sheet:
    """Read the standard input, whose name says nothing about its kind: the first bytes do."""
    source = "the standard input"
    if not raw:
        raise _nothing_in(source, header=header)
    if raw.startswith(PARQUET_MAGIC):
        return _parquet_sheet(source, raw)
    text = _uncompressed(source, raw) if raw.startswith(GZIP_MAGIC) else raw
    return _text_sheet(source, _text_of(source, text), header=header)


def listed(names: Sequence[str], *, limit: int = 5) -> str:
    """Names for a message: the first few, and how many more there are."""
    shown = ", ".join(repr(name) for name in names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


def _bytes_of(source: str, *, begin: bool = False) -> bytes:
    """Return the bytes of a file; with `begin`, those of its first lines, one of which is not blank."""
    if _is_folder(Path(source)):
        raise InputError(f"{source} is a directory, expected a file; name one of the files in it.")
    try:
        with Path(source).open("rb") as file:
            return _first_lines(file) if begin else file.read()
    except FileNotFoundError:
        raise InputError(f"{source} does not exist; check the path and the working directory.") from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"{source} cannot be read ({reason}); check its permissions.") from None
    except ValueError as error:  # a path that no file can have, such as one with a NUL character
        raise InputError(f"{source!r} cannot be the path of a file ({error}); check the path.") from None


def _first_lines(file: BinaryIO) -> bytes:
    raw = b""
    while more := file.read(_BYTES_AT_A_TIME):
        raw += more
        lines = raw.splitlines(keepends=True)
        # The last one may go on, or have half of its line end.
        if any(line.strip() for line in lines[:-1]):
            return b"".join(lines[:-1])
    return raw


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # no right to look, or a name that is too long: the attempt to use it says which
        return False


def _uncompressed(source: str, raw: bytes) -> bytes:
    try:
        return gzip.decompress(raw)
    except (OSError, EOFError, zlib.error):
        raise InputError(
            f"{source} ends in .gz but is not a whole gzip file; compress it again or take the .gz off its name."
        ) from None


# --- text -----------------------------------------------------------------------------------------------


def _text_of(source: str, raw: bytes) -> bytes:
    """Return the file's text, in UTF-8, with line feeds between its lines, whichever of three line ends it uses."""
    for magic, complaint in OTHER_FORMATS.items():
        if raw.startswith(magic):
            raise InputError(f"{source} {complaint}.")
    raw = raw.removeprefix(BYTE_ORDER_MARK).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    nul = raw.find(b"\0")
    if nul >= 0:
        line = raw.count(b"\n", 0, nul) + 1
        raise InputError(f"{source}, line {line}: found a NUL byte, expected text; save the file as CSV (UTF-8).")
    try:
        if not raw.isascii():
            raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{source}, line {line}: found the byte 0x{raw[error.start]:02X}, which is not UTF-8; "
            "save the file as CSV (UTF-8)."
        ) from None
    return raw


def _lines_of(text: str) -> pl.Series:
    """Return the physical lines: split by polars, some megabytes at a time since one of its texts has a limit."""
    parts, begin = [], 0
    while begin <= len(text):
        end = text.find("\n", begin + _SPLIT_AT_A_TIME)
        end = len(text) if end < 0 else end
        parts.append(pl.Series("line", [text[begin:end]], dtype=pl.String).str.split("\n").explode())
        begin = end + 1
    return pl.concat(parts)


def _text_sheet(source: str, text: bytes, *, header: bool) -> Sheet:
    """Cut lines into cells after checking that each line has as many as the header.

    Polars alone would pad short rows with nulls without a word, and a quoted line break would shift every
    line number after it, so the shape is settled here first and polars only cuts what is known to be regular.
    """
    text = text.rstrip(b"\n")
    # In the first line that is not blank.
    begin = next((found.start() for found in re.finditer(rb"[^ \n]", text)), len(text))
    end = text.find(b"\n", begin)
    header_line = re.sub(QUOTED_CELL, "", text[begin : len(text) if end < 0 else end].decode())
    separator = next((separator for separator in SEPARATORS if separator in header_line), ",")
    shape = _regular_shape(text, separator.encode())
    if shape is None:
        text, numbers, width = _checked_lines(source, text.decode(), separator)
        shape = len(numbers), width
    else:
        numbers = np.arange(1, shape[0] + 1)
    cells = _cut(source, text, shape, separator=separator)
    names = tuple(str(place + 1) for place in range(shape[1]))
    bare = Sheet(source, source, names, tuple(cells.get_columns()), numbers)
    return with_header(bare) if header else bare


def _regular_shape(text: bytes, separator: bytes) -> tuple[int, int] | None:
    """Return rows and columns of a text without quotes whose lines all have as many cells, two or more.

    None for any other text: `_checked_lines` says what there is about it.
    """
    end = text.find(b"\n")
    cuts = text.count(separator, 0, len(text) if end < 0 else end)
    if cuts == 0 or b'"' in text:
        return None
    rows, begin = 0, 0
    while begin < len(text):
        end = text.find(b"\n", begin + _BYTES_AT_A_TIME)
        end = len(text) if end < 0 else end
        part = np.frombuffer(text, dtype=np.uint8, count=end - begin, offset=begin)
        ends, places = np.flatnonzero(part == ord("\n")), np.flatnonzero(part == ord(separator))
        rows, begin = rows + len(ends) + 1, end + 1
        if len(places) != cuts * (len(ends) + 1):
            return None
        # Each line's first cut comes after the line before it, and its last one before its end.
        if (places[cuts::cuts] < ends).any() or (places[cuts - 1 : -1 : cuts] > ends).any():
            return None
    return rows, cuts + 1


def _checked_lines(source: str, text: str, separator: str) -> tuple[bytes, NDArray[np.int64], int]:
    """Return a text without its blank lines, the number of each line that is left, and how many cells each has."""
    written = _lines_of(text)
    filled = (written.str.strip_chars(" ") != "").to_numpy()
    lines = written if filled.all() else written.filter(filled)
    numbers = np.flatnonzero(filled) + 1
    if lines.is_empty():
        raise InputError(f"{source} is empty; expected a line of column names and at least one row.")
    _check_quotes(source, lines, numbers, separator=separator)
    width = _check_widths(source, lines, numbers, separator=separator)
    # Blank lines between rows of one column may be rows whose only cell is empty.
    if width == 1 and (gaps := np.flatnonzero(np.diff(numbers) > 1)).size:
        raise InputError(
            f"{source}, line {numbers[gaps[0]] + 1}: found a blank line between the rows, expected a value "
            "in the only column; fill it in or remove the line."
        )
    body = text if len(lines) == len(written) else "\n".join(lines.to_list())
    return body.encode(), numbers, width


def _check_quotes(source: str, lines: pl.Series, numbers: NDArray[np.int64], *, separator: str) -> None:
    """Refuse quotation marks that do not enclose a whole cell on one line, since they read in two ways."""
    quoted = lines.str.contains('"', literal=True)
    if not quoted.any():
        return
    cell = f'(?:{QUOTED_CELL}|[^"{separator}]*)'
    wrong = (quoted & ~lines.str.contains(f"^{cell}(?:{separator}{cell})*$")).arg_true()
    if len(wrong):
        raise InputError(
            f"{source}, line {numbers[wrong[0]]}: found a quotation mark that does not enclose a whole cell "
            'on that line; quote the whole cell, double the quotes inside it (""), and take out line breaks.'
        )


def _check_widths(source: str, lines: pl.Series, numbers: NDArray[np.int64], *, separator: str) -> int:
    """Return the number of columns, the same on every line."""
    bare = lines.str.replace_all(QUOTED_CELL, "") if lines.str.contains('"', literal=True).any() else lines
    counts = bare.str.count_matches(separator, literal=True)
    widths = counts.to_numpy().astype(np.int64) + 1
    ragged = np.flatnonzero(widths != widths[0])
    if ragged.size:
        found, kind = int(widths[ragged[0]]), SEPARATORS[separator]
        decimals = " and write decimals with a point" if separator == "," else ""
        raise InputError(
            f"{source}, line {numbers[ragged[0]]}: found {found} {'cell' if found == 1 else 'cells'}, "
            f"expected {widths[0]} as in the first line, cut at each {kind}; complete the line, or quote a cell "
            f"that holds a {kind}{decimals}."
        )
    return int(widths[0])


def _cut(source: str, body: bytes, shape: tuple[int, int], *, separator: str) -> pl.DataFrame:
    """Let polars cut so many lines into so many cells, the user's header being the first row.

    A header of our own comes first because polars takes bytes that happen to begin like a compressed file (a
    column called "x^2" does) for one.
    """
    names = [str(position) for position in range(shape[1])]
    written = io.BytesIO(b"".join((separator.join(names).encode(), b"\n", body, b"\n")))
    cells = _guarded(source, lambda: pl.read_csv(written, separator=separator, schema=dict.fromkeys(names, pl.String)))
    if cells.shape != shape:
        raise InputError(f"{source} was cut into {cells.height} rows instead of {shape[0]}; save it again as CSV.")
    return cells.fill_null("")


# --- Parquet --------------------------------------------------------------------------------------------


def _parquet_sheet(source: str, raw: bytes, *, rows: int | None = None) -> Sheet:
    # A file without its footer has been cut off, and polars should not be asked to make sense of the rest.
    if len(raw) < 12 or not raw.startswith(PARQUET_MAGIC) or not raw.endswith(PARQUET_MAGIC):
        raise InputError(f"{source} is not a whole Parquet file; write it again, or name it .csv if it is text.")
    frame = _guarded(source, lambda: pl.read_parquet(io.BytesIO(raw), n_rows=rows))
    if frame.width == 0 or frame.height == 0:
        raise InputError(f"{source} has {frame.width} columns but no rows; expected at least one row.")
    names = tuple(_clean(name) for name in frame.columns)
    return Sheet(source, source, names, tuple(frame.get_columns()), None)


def _guarded(source: str, read: Callable[[], pl.DataFrame]) -> pl.DataFrame:
    """Run one polars reader; any error of it, panics included, becomes one sentence."""
    try:
        return read()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"{source} cannot be read as a table ({reason}); write it again.") from None


def _clean(name: str) -> str:
    return name.replace("\ufeff", "").strip()


# --- writing --------------------------------------------------------------------------------------------


def write_rows(path: FilePath, columns: Mapping[str, Sequence[Any] | NDArray[Any] | pl.Series]) -> None:
    """Write columns of equal length as .csv or .parquet, or as CSV to the output for `-`.

    The same content gives the same bytes.

    The file is written whole or not at all (`palmatch.atomic`).
    """
    source = os.fspath(path)
    if source == "-":
        sys.stdout.write(_frame_of(source, columns).write_csv(line_terminator="\n"))
        return
    target = Path(source)
    kind = target.suffix.lower()
    if kind not in (".csv", ".parquet"):
        raise InputError(f"{source} ends in neither .csv nor .parquet; choose one of these.")
    if not _is_folder(target.parent):
        raise InputError(f"{source} cannot be written: the folder {target.parent} does not exist; create it first.")
    if _is_folder(target):
        raise InputError(f"{source} is a directory, expected the name of a file; choose another name.")
    frame = _frame_of(source, columns)
    buffer = io.BytesIO()
    if kind == ".csv":
        frame.write_csv(buffer, line_terminator="\n")
    else:
        frame.write_parquet(buffer, compression="zstd")
    write_atomic(target, buffer.getvalue())


def _frame_of(source: str, columns: Mapping[str, Sequence[Any] | NDArray[Any] | pl.Series]) -> pl.DataFrame:
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) != 1:
        raise InputError(f"{source} cannot be written: expected columns of one length, found {lengths}.")
    try:
        return pl.DataFrame({name: pl.Series(name, values) for name, values in columns.items()})
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        kind = type(error).__name__
        raise InputError(f"{source} cannot be written: a column mixes kinds of values ({kind}).") from None


# --- what a caller holds in memory ----------------------------------------------------------------------


Library: TypeAlias = Literal["polars", "pandas", "pyarrow"]


def is_frame(value: Any) -> bool:
    """Say whether a value has named columns; refuse what only looks like data: paths, and frames without rows yet."""
    if isinstance(value, str | bytes | os.PathLike):
        raise InputError(
            "Expected a data frame or an array, got a string or a path: read the file first, for instance with "
            "polars.read_csv, or use the command."
        )
    if isinstance(value, pl.LazyFrame):
        raise InputError("Expected a data frame, got a LazyFrame, which has no rows yet: call .collect() on it.")
    return isinstance(value, pl.DataFrame) or _is_pandas(value) or hasattr(value, "__arrow_c_stream__")


def library_of(value: Any) -> Library:
    """Return the library that a frame comes from; polars for anything that is none."""
    if _is_pandas(value):
        return "pandas"
    return "pyarrow" if type(value).__module__.partition(".")[0] == "pyarrow" else "polars"


def sheet_of(frame: Any, source: str) -> Sheet:
    """Return the columns of a frame, with the index of a pandas frame as `id` where it says more than row numbers."""
    if _is_pandas(frame):
        columns = _pandas_columns(frame, source)
    else:
        try:
            table = frame if isinstance(frame, pl.DataFrame) else pl.DataFrame(frame)
        except Exception as error:  # whatever another library raises, its text may quote values
            raise InputError(
                f"{source}: cannot be read as a data frame ({type(error).__name__}); give a polars or pandas frame."
            ) from None
        columns = [(name, table[name]) for name in table.columns]
    return _sheet(source, columns)


def sheet_of_numbers(values: Any, names: Sequence[str], source: str) -> Sheet:
    """Return rows of numbers as a sheet with these column names."""
    try:
        table = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{source}: expected rows of ({', '.join(names)}) as numbers, got something else.") from None
    if table.size == 0:
        raise InputError(f"{source}: there are no rows.")
    if table.ndim != 2 or table.shape[1] != len(names):
        raise InputError(f"{source}: expected rows of ({', '.join(names)}), got an array of shape {table.shape}.")
    return _sheet(source, [(name, pl.Series(name, table[:, place])) for place, name in enumerate(names)])


def _sheet(source: str, columns: Sequence[tuple[str, pl.Series]]) -> Sheet:
    if not columns or len(columns[0][1]) == 0:
        raise InputError(f"{source}: there are no rows.")
    names = tuple(str(name).strip() for name, _ in columns)
    return Sheet(source, source, names, tuple(series for _, series in columns), None, first_row=0)


def _is_pandas(value: Any) -> bool:
    # GeoDataFrame is a subclass of pandas' own; neither library has to be installed to ask.
    return any(kind.__module__.partition(".")[0] == "pandas" for kind in type(value).__mro__) and hasattr(value, "iloc")


def _pandas_columns(frame: Any, source: str) -> list[tuple[str, pl.Series]]:
    if frame.ndim != 2:
        raise InputError(f"{source}: expected a data frame, got a single column; give a frame with named columns.")
    geometry = getattr(frame, "_geometry_column_name", None)
    columns = [
        (str(name), _pandas_series(frame.iloc[:, place], source))
        for place, name in enumerate(frame.columns)
        if name != geometry
    ]
    known = {name.strip().casefold() for name, _ in columns}
    if "id" not in known and frame.index.tolist() != list(range(len(frame))):
        columns.insert(0, ("id", pl.Series("id", [str(value) for value in frame.index], dtype=pl.String)))
    if geometry in frame.columns:
        columns += _degrees(frame, source)
    return columns


def _pandas_series(values: Any, source: str) -> pl.Series:
    name = str(values.name)
    if values.dtype.kind in "iufb":
        # Nullable and Arrow-backed columns too: a missing number becomes null, not an invented one.
        missing = values.isna().to_numpy()
        numbers = pl.Series(name, values.to_numpy(dtype=np.float64, na_value=np.nan))
        whole = values.dtype.kind in "iu" and not missing.any()
        return numbers.cast(pl.Int64) if whole else numbers.set(pl.Series(missing), None)
    cells = [None if gone else value for value, gone in zip(values.tolist(), values.isna().tolist(), strict=True)]
    try:
        return pl.Series(name, cells)
    except (TypeError, pl.exceptions.PolarsError):
        raise InputError(f"{source}, column {name!r}: found values of several kinds; convert the column.") from None


def _degrees(frame: Any, source: str) -> list[tuple[str, pl.Series]]:
    """Return latitude and longitude of a GeoDataFrame's points."""
    points = frame.geometry
    if points.crs is None:
        raise InputError(f"{source}: the geometry has no coordinate system; set it, for instance with .set_crs(4326).")
    if not (points.geom_type == "Point").all():
        raise InputError(f"{source}: expected points as geometry, found other shapes; take .centroid of them.")
    degrees = points.to_crs(4326)
    return [("lat", pl.Series("lat", degrees.y.to_numpy())), ("lon", pl.Series("lon", degrees.x.to_numpy()))]


DECIMAL_COMMA = r"^[+-]?\d*,\d+$"

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
    # A name begins with a letter and holds few digits.
    are_names = all(not name or (name[0].isalpha() and sum(map(str.isdigit, name)) <= 4) for name in names)
    return list(names) if are_names else ["(a value)"] * len(names)


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
    shown = text if len(text) <= 40 else text[:40] + "..."
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
    return series.cast(pl.String).fill_null("").str.strip_chars()


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
