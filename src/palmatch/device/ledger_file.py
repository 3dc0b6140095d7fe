"""How a ledger lies on the disk: rows that are only ever added, each chained to the one before by a checksum.

This room makes sure that what was written stays, and says so in words when it did not. It may not know what a
budget is or when a charge is refused; that is `ledger.py`, which never touches SQLite itself.
"""

from __future__ import annotations

import json
import operator
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from palmatch.errors import PalmatchError

APPLICATION = 0x70616C6D  # "palm", so that `file` and a stranger's tool can tell whose file it is
VERSION = 1
BATCH = 500

# What to do about it, in the words of who opened the file: an agent that wants to act, or somebody who looks into it.
AGENT_ADVICE = ("keep the file, treat its whole budget as spent and do not act", "no receipt was given, so do not act")
READER_ADVICE = ("keep the file; its agent has to treat the whole budget as spent", "nothing was charged")

# Every row carries agent, limits and total, so the last row is the whole state and one checksum covers all of
# it. The checks and triggers bind every program that writes to the file, not only this one; the third trigger
# also stops INSERT OR REPLACE, which deletes without asking the second. The index is a second witness: a file
# that has lost its last rows, but not their index, fails SQLite's integrity check.
SCHEMA = (
    """CREATE TABLE entry (
  number INTEGER PRIMARY KEY,
  kind TEXT NOT NULL CHECK (kind IN ('opened', 'charged', 'lowered', 'raised')),
  time INTEGER NOT NULL CHECK (typeof(time) = 'integer' AND time >= 0),
  agent TEXT NOT NULL,
  matching TEXT NOT NULL,
  purpose TEXT NOT NULL,
  units INTEGER NOT NULL CHECK (typeof(units) = 'integer' AND units >= 0),
  spent INTEGER NOT NULL CHECK (typeof(spent) = 'integer' AND spent >= units),
  lifetime INTEGER NOT NULL CHECK (typeof(lifetime) = 'integer' AND lifetime >= 0),
  per_period INTEGER CHECK (per_period IS NULL OR (typeof(per_period) = 'integer' AND per_period >= 0)),
  period_seconds INTEGER NOT NULL CHECK (typeof(period_seconds) = 'integer' AND period_seconds > 0),
  digest TEXT NOT NULL,
  CHECK (units = 0 OR (kind = 'charged' AND spent <= lifetime)))""",
    "CREATE INDEX entry_time ON entry (time)",
    """CREATE TRIGGER entry_stays BEFORE UPDATE ON entry
BEGIN SELECT RAISE(ABORT, 'a ledger is append-only: no entry may be changed'); END""",
    """CREATE TRIGGER entry_remains BEFORE DELETE ON entry
BEGIN SELECT RAISE(ABORT, 'a ledger is append-only: no entry may be deleted'); END""",
    """CREATE TRIGGER entry_follows BEFORE INSERT ON entry
WHEN NEW.number <> (SELECT coalesce(max(number), 0) + 1 FROM entry)
BEGIN SELECT RAISE(ABORT, 'a ledger is append-only: an entry may only follow the last'); END""",
)

# TRUNCATE and EXTRA. A kill -9 is harmless in every mode, since the kernel keeps what was written; power loss
# is not:
# - WAL keeps the newest charges in a second file until a checkpoint: a copy, backup or restore of the ledger
#   file alone would silently give them back. With a rollback journal the one file holds every committed
#   charge.
# - DELETE commits by unlinking the journal. Unless the folder is synced too (EXTRA), the journal can come
#   back after power loss and undo a charge whose act was already seen, and not every file system honours the
#   sync of a folder.
# - TRUNCATE commits by emptying the journal and, from FULL upwards, syncs that file itself: no folder is
#   involved.
# EXTRA is FULL here; it also covers a journal that SQLite has to unlink, as after rolling back another tool's
# crash. fullfsync makes macOS empty the drive's own cache; elsewhere it changes nothing.
PRAGMAS = (("journal_mode", "TRUNCATE", "truncate"), ("synchronous", "EXTRA", 3), ("fullfsync", "ON", 1))

REASONS = {
    sqlite3.SQLITE_BUSY: "another process kept the ledger locked; try again when it has finished",
    sqlite3.SQLITE_NOTADB: "found a file that is not SQLite, expected a ledger; give the ledger's path",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; keep it and treat its whole budget as spent",
    sqlite3.SQLITE_READONLY: "the file or its folder is read-only; make both writable",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened; give the path of a file in a writable folder",
    sqlite3.SQLITE_FULL: "the disk is full; free some space",
}


class LedgerError(PalmatchError):
    """The ledger cannot be relied on just now: no receipt was given, so an agent must not act."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One row: a charge, or the opening, lowering or raising of the limits; figures are as after this row."""

    number: int
    kind: str
    time: int
    agent: str
    matching: str
    purpose: str
    units: int
    spent: int
    lifetime: int
    per_period: int | None
    period_seconds: int
    digest: str


_COLUMNS = tuple(field.name for field in fields(Entry))
_values = operator.attrgetter(*_COLUMNS)
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM entry"
_INSERT = f"INSERT INTO entry ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"


class LedgerFile:
    """An open ledger file; `first` is the row of a new one, or None where the file has to exist already.

    `acting` says whether errors speak to an agent that wants to act, or to somebody who looks into its file.
    """

    def __init__(self, path: Path, first: Entry | None, *, acting: bool, timeout_seconds: float) -> None:
        self.path, self._process = path, os.getpid()
        self._seen = (0, "")
        self.damaged, self._failed = AGENT_ADVICE if acting else READER_ADVICE
        with self._in_words():
            if not path.exists():
                if first is None:
                    raise LedgerError(f"{path}: found no file, expected a ledger; give the ledger's path.")
                self._announce()
            self._opened = self._identity()  # before SQLite opens it, so that no swap can fall in between
            self._connection = self._connect(timeout_seconds)
            try:
                self._begin(first)
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold the only right to write from the first check to the commit, so that no unit is spent twice."""
        self._run("BEGIN IMMEDIATE")
        try:
            yield
            self._run("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._run("ROLLBACK")
            raise

    def append(self, tip: Entry, **changes: Any) -> Entry:
        """Add a row after `tip`, equal to it but for `changes`; only within a transaction."""
        entry = _sealed(tip.digest, replace(tip, number=tip.number + 1, **changes))
        self._run(_INSERT, *_values(entry))
        return entry

    def confirm(self, entry: Entry) -> None:
        """Make sure that a committed row is in the file that lies at the path, not in one just replaced."""
        self._seen = entry.number, entry.digest
        self.tip()

    def tip(self) -> Entry:
        """Give the last row, once sure that this is still the file and history that were opened."""
        with self._in_words():
            replaced = self._identity() != self._opened or not self.holds(*self._seen)
        if replaced:
            raise LedgerError(f"{self.path}: the file was replaced while it was open; {self.damaged}.")
        found = self._run(f"{_SELECT} ORDER BY number DESC LIMIT 2")
        if not found:
            raise LedgerError(f"{self.path}: found no entries, expected at least one; {self.damaged}.")
        tip = Entry(*found[0])
        if not _follows(Entry(*found[1]) if len(found) > 1 else None, tip):
            raise LedgerError(f"{self.path}: the last entry, {tip.number}, has a wrong checksum; {self.damaged}.")
        self._seen = tip.number, tip.digest
        return tip

    def entries(self) -> Iterator[Entry]:
        """All rows, oldest first; read in batches, so that a slow reader keeps nobody from writing."""
        number = 0
        while found := self._run(f"{_SELECT} WHERE number > ? ORDER BY number LIMIT {BATCH}", number):
            yield from (Entry(*row) for row in found)
            number = found[-1][0]

    def holds(self, number: int, digest: str) -> bool:
        """Say whether the row `number` is there, with this checksum."""
        found = self._run("SELECT count(*) FROM entry WHERE number = ? AND digest = ?", number, digest)
        return number == 0 or found == [(1,)]

    def spent_before(self, second: int) -> int:
        """Give the total of everything charged before `second`."""
        query = "SELECT spent FROM entry WHERE time < ? ORDER BY time DESC, number DESC LIMIT 1"
        found = self._run(query, second)
        return int(found[0][0]) if found else 0

    def verify(self) -> int:
        """Check the file and every row's place, checksum and total; give the number of rows."""
        self._check_schema()
        if self._run("PRAGMA integrity_check(1)") != [("ok",)]:
            raise LedgerError(f"{self.path}: SQLite finds the file inconsistent; {self.damaged}.")
        previous = None
        for entry in self.entries():
            if not _follows(previous, entry):
                raise LedgerError(f"{self.path}: entry {entry.number} does not follow the last; {self.damaged}.")
            previous = entry
        return self.tip().number

    def _run(self, statement: str, *values: object) -> list[Any]:
        if os.getpid() != self._process:  # SQLite's locks do not survive a fork
            raise LedgerError(f"{self.path}: opened before a fork; open it again in the new process.")
        with self._in_words():
            return self._connection.execute(statement, values).fetchall()

    def _connect(self, timeout_seconds: float) -> sqlite3.Connection:
        # mode=rw: SQLite must never make a new, unspent ledger where an old one has just gone
        uri = f"{self.path.absolute().as_uri()}?mode=rw"
        connection = sqlite3.connect(uri, uri=True, timeout=timeout_seconds, isolation_level=None)
        # a damaged text must end in a wrong checksum, which names the row, not in a decoding error
        connection.text_factory = partial(str, encoding="utf-8", errors="replace")
        return connection

    def _begin(self, first: Entry | None) -> None:
        # Whose file it is comes first: a setting below would be written into another program's file.
        if not self._is_blank():
            self._check_schema()
        for name, value, expected in PRAGMAS:
            self._run(f"PRAGMA {name} = {value}")
            if (found := self._run(f"PRAGMA {name}")) != [(expected,)]:
                raise LedgerError(f"{self.path}: SQLite refused {name}={value}, found {found}; {self._failed}.")
        if self._is_blank():
            with self.transaction():
                if self._is_blank():  # asked again, now that nobody else can be creating it
                    self._create(first)
        self._check_schema()
        self._marker().unlink(missing_ok=True)

    def _marker(self) -> Path:
        return self.path.with_name(self.path.name + "-new")

    def _announce(self) -> None:
        """Mark that a ledger is being made: an empty file is a beginning with it, and damage without."""
        self._marker().touch()
        with suppress(FileExistsError):
            self.path.touch(mode=0o600, exist_ok=False)

    def _is_blank(self) -> bool:
        return self._run("SELECT count(*) FROM sqlite_master") == [(0,)]

    def _create(self, first: Entry | None) -> None:
        if first is None or not self._marker().exists():
            raise LedgerError(f"{self.path}: the file is empty, expected a ledger; {self.damaged}.")
        for statement in SCHEMA:
            self._run(statement)
        self._run(f"PRAGMA application_id = {APPLICATION}")
        self._run(f"PRAGMA user_version = {VERSION}")
        self._run(_INSERT, *_values(_sealed("", first)))

    def _check_schema(self) -> None:
        if self._run("PRAGMA application_id") != [(APPLICATION,)]:
            raise LedgerError(f"{self.path}: found another program's file, expected a ledger; give its path.")
        if (found := self._run("PRAGMA user_version")) != [(VERSION,)]:
            raise LedgerError(f"{self.path}: found version {found[0][0]}, expected {VERSION}; update palmatch.")
        if not {sql for (sql,) in self._run("SELECT sql FROM sqlite_master")}.issuperset(SCHEMA):
            raise LedgerError(f"{self.path}: the tables are not as they were made; {self.damaged}.")

    def _identity(self) -> tuple[int, int]:
        found = self.path.stat()
        return found.st_dev, found.st_ino

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the low byte is the kind, the rest says where
            reason = REASONS.get(code, str(error))
            raise LedgerError(f"{self.path}: {reason}; {self._failed}.") from error
        except UnicodeDecodeError as error:  # SQLite's own message quotes damaged bytes
            raise LedgerError(f"{self.path}: the file is damaged; {self.damaged}.") from error
        except OSError as error:
            raise LedgerError(f"{self.path}: {error.strerror}; {self._failed}.") from error


def _digest(previous: str, entry: Entry) -> str:
    """Chain the row to the one before: the checksum of the earlier checksum and of all other columns."""
    # repr: what a damaged file holds in place of a number must end in a wrong checksum, not in a TypeError
    text = json.dumps([previous, *_values(entry)[:-1]], default=repr)
    return blake2b(text.encode(), digest_size=32).hexdigest()


def _sealed(previous: str, entry: Entry) -> Entry:
    return replace(entry, digest=_digest(previous, entry))


def _follows(previous: Entry | None, entry: Entry) -> bool:
    number, spent, since, digest = (0, 0, 0, "")
    if previous:
        number, spent, since, digest = previous.number, previous.spent, previous.time, previous.digest
    return (
        entry.digest == _digest(digest, entry)
        and entry.number == number + 1
        and entry.spent == spent + entry.units
        and entry.time >= since
    )
