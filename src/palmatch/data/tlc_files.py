"""Opening a taxi file of any packing, a block of rows at a time.

Plain CSV, gzip, a zip with one CSV, or Parquet become the same thing: small frames, and where in them each role
is found. Packed files are unpacked on the way, in memory, so no disk space is needed. Nothing in here knows
what a time or a place means.
"""

from __future__ import annotations

import csv
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import polars as pl
from polars.exceptions import PanicException, PolarsError

from palmatch.data.tlc_schema import POSITIONS, columns_of, roles_in
from palmatch.errors import InputError, in_a_sentence

# Small enough that a month of trips needs a few hundred megabytes, large enough that blocks cost no time.
_BLOCK_BYTES: Final = 8 << 20
_BLOCK_ROWS: Final = 1 << 19
_LONGEST_HEADER: Final = 1 << 16
# A taxi row has some 200 characters: a line that fills whole blocks is not a row but another kind of file.
_LONGEST_LINE: Final = 8 * _BLOCK_BYTES
# Lines are read whole, so the reader needs a separator that no line contains.
_NEVER: Final = "\x01"
# The TLC's own comes first; the others are what spreadsheets and databases write when these files are passed on.
_SEPARATORS: Final = (",", "\t", ";", "|")


@dataclass(frozen=True, slots=True)
class Records:
    """A file's rows, in its own order, and how to find things in them.

    Attributes
    ----------
    blocks : iterator of DataFrame
        The rows, once; it opens the file when it starts and closes it when it ends.
    column : mapping of str to Expr
        Role to the expression that takes the raw column out of a block.
    whole : callable
        A block to a Series of bool: which rows have as many fields as the header.
    """

    blocks: Iterator[pl.DataFrame]
    column: Mapping[str, pl.Expr]
    whole: Callable[[pl.DataFrame], pl.Series]


@contextmanager
def open_records(path: Path) -> Iterator[Records]:
    """Open a file and find its columns; whatever is wrong with it, now or in a later block, is an `InputError`."""
    with _in_the_users_words(path):
        start = _first_bytes(path)
        if start == b"PAR1":
            yield _from_parquet(path)
        else:
            with _unpacked(path, start=start) as text:
                yield _from_text(text, source=str(path))


@contextmanager
def _in_the_users_words(path: Path) -> Iterator[None]:
    try:
        yield
    # A damaged archive may also have a name that is no text.
    except (EOFError, UnicodeDecodeError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, zipfile.BadZipFile) as error:
        raise InputError(
            f"{path} cannot be unpacked ({in_a_sentence(error)}), expected a complete gzip or zip file; it was "
            "probably cut off on the way, so download it again."
        ) from error
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist; check the path of the taxi file.") from error
    except IsADirectoryError as error:
        raise InputError(f"{path} is a folder, expected one taxi file (CSV, .gz, .zip or Parquet).") from error
    except (OSError, RuntimeError, PolarsError, PanicException) as error:
        raise InputError(
            f"{path} cannot be read ({in_a_sentence(error)}), expected a taxi file as CSV, .gz, .zip or Parquet; "
            "check that it is complete and may be read."
        ) from error


def _first_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(4)
    except ValueError as error:
        raise InputError(f"{str(path)!r} is not a path ({in_a_sentence(error)}); check it.") from error


@contextmanager
def _unpacked(path: Path, *, start: bytes) -> Iterator[IO[bytes]]:
    if start[:2] == b"\x1f\x8b":
        with gzip.open(path, "rb") as text:
            yield io.BufferedReader(text)
    elif start in (b"PK\x03\x04", b"PK\x05\x06"):
        with zipfile.ZipFile(path) as archive, archive.open(_only_table(archive, source=path)) as text:
            yield text
    else:
        with path.open("rb") as text:
            yield text


def _only_table(archive: zipfile.ZipFile, *, source: Path) -> zipfile.ZipInfo:
    # macOS adds a shadow of each file under __MACOSX/ to the archives that it makes.
    tables = [
        member
        for member in archive.infolist()
        if member.filename.lower().endswith(".csv") and not member.filename.startswith("__MACOSX/")
    ]
    if len(tables) != 1:
        found = ", ".join(member.filename for member in archive.infolist()[:10]) or "nothing"
        raise InputError(
            f"{source}: found {len(tables)} CSV files in the archive ({found}), expected exactly one; unpack "
            "it and give the file that you mean."
        )
    return tables[0]


def _from_text(text: IO[bytes], *, source: str) -> Records:
    line = _header(text, source=source)
    separator = max(_SEPARATORS, key=lambda mark: roles_in(line.split(mark)))
    header = line.split(separator)
    # Nameless columns at the end are stray commas, which may or may not be in the rows too.
    while header and not header[-1].strip():
        header.pop()
    columns = columns_of(header, source=source)
    return Records(
        blocks=_lines(text, source=source, separator=separator, number=len(header)),
        column={role: _field(index, separator, number=role in POSITIONS) for role, index in columns.items()},
        whole=lambda block: _has_fields(block["line"], number=len(header), separator=separator),
    )


def _field(index: int, separator: str, *, number: bool) -> pl.Expr:
    field = pl.col("line").str.splitn(separator, index + 2).struct.field(f"field_{index}").str.strip_chars(' "')
    # Another separator may have been chosen because a comma is in the numbers.
    return field.str.replace(",", ".", literal=True) if number and separator != "," else field


def _header(text: IO[bytes], *, source: str) -> str:
    line = b"\n"
    while line and _is_before_header(line):
        line = text.readline(_LONGEST_HEADER)
    if not line:
        raise InputError(f"{source} is empty, expected a taxi file with a header; download it again.")
    if found := _no_header(line):
        raise InputError(
            f"{source}, line 1: found {found}, expected the header of a CSV, gzip, zip or Parquet file; check "
            "what this file is."
        )
    return line.decode("utf-8", errors="replace").strip("\r\n")


def _is_before_header(line: bytes) -> bool:
    """Say whether a line is blank, a remark, or the `sep=;` with which spreadsheets begin."""
    plain = line.strip().lower()
    return not plain or plain.startswith((b"#", b"sep="))


def _no_header(line: bytes) -> str | None:
    """Say what a first line is that cannot be a header."""
    if b"\x00" in line or line[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "bytes that are no UTF-8 text"
    if b"\r" in line.rstrip(b"\r\n"):
        return "a carriage return within the line (lines should end in a line feed)"
    if len(line) >= _LONGEST_HEADER:
        return f"a first line of {_LONGEST_HEADER:,} characters or more"
    return None


def _lines(text: IO[bytes], *, source: str, separator: str, number: int) -> Iterator[pl.DataFrame]:
    # A quotation mark is an ordinary character here: a stray one in a junk row would otherwise swallow the rows
    # up to the next, uncounted. Blank lines come back as null; they are not rows.
    for block in _whole_lines(text, source=source):
        lines = pl.read_csv(
            block.replace(_NEVER.encode(), b"?"),
            has_header=False,
            schema={"line": pl.String},
            separator=_NEVER,
            quote_char=None,
            encoding="utf8-lossy",
        ).drop_nulls()
        yield lines.with_columns(_unquoted(lines["line"], separator=separator, number=number))


def _whole_lines(text: IO[bytes], *, source: str) -> Iterator[bytes]:
    rest = b""
    while data := text.read(_BLOCK_BYTES):
        cut = data.rfind(b"\n") + 1
        if cut:
            yield rest + data[:cut]
            rest = data[cut:]
        else:
            rest += data
        if len(rest) > _LONGEST_LINE:
            raise InputError(
                f"{source}: found no line break in {_LONGEST_LINE:,} bytes, expected one row a line; check what "
                "this file is."
            )
    if rest:
        yield rest


def _unquoted(line: pl.Series, *, separator: str, number: int) -> pl.Series:
    """Take separators out of quoted fields, in the few lines that have too many of them and a quotation mark."""
    odd = (line.str.count_matches(separator, literal=True) >= number) & line.str.contains('"', literal=True)
    if not odd.any():
        return line
    rows = odd.arg_true()
    return line.scatter(rows, [_without_quotes(text, separator) for text in line.gather(rows).to_list()])


def _without_quotes(line: str, separator: str) -> str:
    # One line at a time, so that a quotation mark that is never closed spoils its own line only.
    try:
        fields = next(csv.reader([line], delimiter=separator))
    except csv.Error:
        return line
    return separator.join(field.replace(separator, " ") for field in fields)


def _has_fields(line: pl.Series, *, number: int, separator: str) -> pl.Series:
    """Say which lines have so many fields; stray separators at the end, with nothing between, do not count."""
    marks = line.str.count_matches(separator, literal=True)
    whole = marks == number - 1
    if (marks >= number).any():
        named = line.str.strip_chars_end(f"{separator} \t").str.count_matches(separator, literal=True)
        whole |= (marks >= number) & (named < number)
    return whole


def _from_parquet(path: Path) -> Records:
    table = pl.scan_parquet(path.absolute(), glob=False)
    header = table.collect_schema().names()
    columns = columns_of(header, source=str(path))
    wanted = table.select(header[index] for index in columns.values())
    return Records(
        blocks=_slices(wanted),
        column={role: pl.col(header[index]) for role, index in columns.items()},
        whole=lambda block: pl.Series(values=[True]).new_from_index(0, len(block)),
    )


def _slices(table: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    rows = table.select(pl.len()).collect().item()
    for start in range(0, rows, _BLOCK_ROWS):
        yield table.slice(start, _BLOCK_ROWS).collect()
