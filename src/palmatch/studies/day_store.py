"""A day on the disk: what has happened and what is under way, in one file, a transaction for each batch.

What was drawn for a batch is kept before the batch is played, so that it is never drawn again. A kill at any instant
loses at most the batch under way; two processes cannot play one day. The file is not to be published. This module
stores rows and bytes; it knows nothing of what they mean.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self, TypeAlias

import polars as pl

from palmatch.errors import InputError

Row: TypeAlias = Sequence[float | int | str | None]


class DayFile:
    """The file of a day: some tables, the last state, and what was drawn ahead for the batch after it."""

    def __init__(self, path: Path, schemas: Mapping[str, pl.Schema]) -> None:
        self.path = path
        self._schemas = dict(schemas)
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
        for name in ("state", "ahead"):
            self._connection.execute(f"CREATE TABLE IF NOT EXISTS {name} (number INTEGER PRIMARY KEY, packed BLOB)")
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
        return self._packed("state")

    def ahead(self) -> bytes | None:
        """Return what was drawn for the batch after that state, if it was."""
        return self._packed("ahead")

    def keep_ahead(self, drawn: bytes) -> None:
        """Write what was drawn for the batch under way."""
        self._connection.execute("INSERT OR REPLACE INTO ahead VALUES (1, ?)", (drawn,))

    def keep(self, state: bytes, rows: Mapping[str, Sequence[Row]]) -> None:
        """Write a batch's rows of each table, and the state after it: all of it or nothing."""
        self._connection.execute("BEGIN")
        for name, schema in self._schemas.items():
            marks = ", ".join("?" * len(schema))
            self._connection.executemany(f"INSERT INTO {name} VALUES ({marks})", rows[name])
        self._connection.execute("INSERT OR REPLACE INTO state VALUES (1, ?)", (state,))
        self._connection.execute("DELETE FROM ahead")
        self._connection.execute("COMMIT")

    def table(self, name: str) -> pl.DataFrame:
        """Return the rows of a table so far."""
        rows = self._connection.execute(f"SELECT * FROM {name} ORDER BY rowid").fetchall()
        return pl.DataFrame(rows, schema=self._schemas[name], orient="row")

    def _packed(self, name: str) -> bytes | None:
        found = self._connection.execute(f"SELECT packed FROM {name}").fetchone()
        return None if found is None else bytes(found[0])
