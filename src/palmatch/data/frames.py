"""Turns what a caller holds in memory into a `Sheet`: polars, pandas and GeoPandas frames, Arrow tables, arrays.

From here on a frame is checked by the same functions as a file. What the columns mean is not known here, and no value
of a frame is ever part of a message.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import polars as pl

from palmatch.data.files import Sheet
from palmatch.errors import InputError

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
