"""A day on the disk: what has happened and what is in the air, in one file, a transaction for each batch.

A kill at any instant loses at most the batch under way; two processes cannot play one day. This room stores rows and
bytes; it knows nothing of what they mean.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self, TypeAlias

import polars as pl

from palmatch.errors import InputError

Row: TypeAlias = Sequence[float | int | None]


class DayFile:
    """The file of a day: two tables, one row for each batch and one for each person who is done, and the last state."""

    def __init__(self, path: Path, *, batches: pl.Schema, people: pl.Schema) -> None:
        self.path = path
        self._schemas = {"batches": batches, "people": people}
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=0.0)
        try:
            self._connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._create()
        except sqlite3.OperationalError as error:
            self.close()
            raise InputError(
                f"{path} cannot be used ({error}); if another palmatch day is at work in this folder, wait for it."
            ) from None
        except sqlite3.DatabaseError as error:
            self.close()
            raise InputError(f"{path} holds no day ({error}); choose another folder, or remove this one.") from None

    def _create(self) -> None:
        self._connection.execute("BEGIN EXCLUSIVE")
        for name, schema in self._schemas.items():
            columns = ", ".join(f'"{column}"' for column in schema)
            self._connection.execute(f"CREATE TABLE IF NOT EXISTS {name} ({columns})")
        self._connection.execute("CREATE TABLE IF NOT EXISTS state (number INTEGER PRIMARY KEY, packed BLOB)")
        self._connection.execute("COMMIT")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def state(self) -> bytes | None:
        """Return the last state that was kept, if any."""
        found = self._connection.execute("SELECT packed FROM state").fetchone()
        return None if found is None else bytes(found[0])

    def keep(self, state: bytes, batch: Mapping[str, float | int | None], people: Sequence[Row]) -> None:
        """Write a batch, the people who are done after it, and the state after it: all of it or nothing."""
        marks = {name: ", ".join("?" * len(schema)) for name, schema in self._schemas.items()}
        self._connection.execute("BEGIN")
        row = [batch[column] for column in self._schemas["batches"]]
        self._connection.execute(f"INSERT INTO batches VALUES ({marks['batches']})", row)
        self._connection.executemany(f"INSERT INTO people VALUES ({marks['people']})", people)
        self._connection.execute("INSERT OR REPLACE INTO state VALUES (1, ?)", (state,))
        self._connection.execute("COMMIT")

    def batches(self) -> pl.DataFrame:
        """Return the batches so far."""
        return self._read("batches")

    def people(self) -> pl.DataFrame:
        """Return the people who are done."""
        return self._read("people")

    def _read(self, name: str) -> pl.DataFrame:
        rows = self._connection.execute(f"SELECT * FROM {name} ORDER BY rowid").fetchall()
        return pl.DataFrame(rows, schema=self._schemas[name], orient="row")
