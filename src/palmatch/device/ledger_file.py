"""How a ledger lies on the disk: rows that are only ever added, each chained to the one before by a checksum.

This module makes sure that what was written stays, and says so when it did not. It may not know what a budget is or
when a charge is refused; that is `ledger.py`, which never touches SQLite itself.
"""

from __future__ import annotations

import json
import operator
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from stat import S_ISREG
from typing import Any, TypeAlias

from palmatch.device.ledger_home import Home, Locked, new_token, sync_folder
from palmatch.errors import PalmatchError

APPLICATION = 0x70616C6D  # "palm", so that `file` and a stranger's tool can tell whose file it is
VERSION = 2
BATCH = 500

# What to do about it: for an agent that wants to act, and for a reader of its file.
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

# What an agent has to remember with a charge: which report it drew, which partition it knows. A value may be replaced
# by a later one, never removed, and its checksum covers the entry with which it was written.
KEPT_SCHEMA = (
    """CREATE TABLE kept (
  name TEXT PRIMARY KEY NOT NULL,
  value TEXT NOT NULL,
  number INTEGER NOT NULL CHECK (typeof(number) = 'integer'),
  digest TEXT NOT NULL)""",
    """CREATE TRIGGER kept_stays BEFORE UPDATE ON kept WHEN NEW.name <> OLD.name OR NEW.number < OLD.number
BEGIN SELECT RAISE(ABORT, 'what is kept may only be replaced by something later'); END""",
    """CREATE TRIGGER kept_remains BEFORE DELETE ON kept
BEGIN SELECT RAISE(ABORT, 'what is kept may not be deleted'); END""",
    """CREATE TRIGGER kept_once BEFORE INSERT ON kept WHEN NEW.name IN (SELECT name FROM kept)
BEGIN SELECT RAISE(ABORT, 'what is kept may only be replaced by something later'); END""",
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
# A journal that is left by a crash belongs to the file beside it only as long as the file stays there: `ledger_home`.
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


# Runs a statement and gives all rows.
Run: TypeAlias = Callable[..., list[Any]]


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

    `acting` says whether errors speak to an agent that wants to act, or to a reader of its file.
    """

    def __init__(self, path: Path, first: Entry | None, *, acting: bool, timeout_seconds: float) -> None:
        self.path, self._process = path, os.getpid()
        self._seen = (0, "")
        self._checked: list[Any] = []
        # Once a file has the table of what is kept, it has it for good.
        self._keeps = False
        self.damaged, self._failed = AGENT_ADVICE if acting else READER_ADVICE
        with self._in_words():
            # SQLite puts the journal beside the file itself, not beside a link to it.
            self._real = path.resolve()
            if first is None and not path.exists():
                raise LedgerError(f"{path}: found no file, expected a ledger; give the ledger's path.")
            self._home = Home(self._real, timeout_seconds)
            try:
                with self._home.lock():
                    if first is not None and not path.exists():
                        self._make(first)
                    self._opened = self._identity()  # before SQLite opens it, so that no swap can fall in between
                    self._refuse_foreign_journal()
                    self._connection = self._connect(self._real, timeout_seconds)
                    self._begin()
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Let go of the file."""
        if hasattr(self, "_connection"):
            self._connection.close()
        self._home.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold the only right to write from the first check to the commit, so that no unit is spent twice."""
        with self._alone():
            self._move_in()
            self._run("BEGIN IMMEDIATE")
            try:
                yield
                self._run("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._run("ROLLBACK")
                raise

    def keep(self, name: str, value: str, entry: Entry, *, new: bool = False) -> None:
        """Remember a value with the entry that was just added; only within a transaction.

        `new` says that the name was just found to be unknown.
        """
        digest = _kept_digest(entry.digest, name, value)
        if new or self.kept(name) is None:
            self._run("INSERT INTO kept VALUES (?, ?, ?, ?)", name, value, entry.number, digest)
        else:
            self._run(
                "UPDATE kept SET value = ?, number = ?, digest = ? WHERE name = ?", value, entry.number, digest, name
            )

    def kept(self, name: str) -> str | None:
        """Give the value that is remembered under a name, once sure that it is what was written."""
        query = "SELECT value, kept.digest, entry.digest FROM kept LEFT JOIN entry USING (number) WHERE name = ?"
        with self._alone():
            self._keeps = self._keeps or self._version() > 1
            found = self._run(query, name) if self._keeps else []
        if not found:
            return None
        value, digest, entry_digest = found[0]
        if digest != _kept_digest(str(entry_digest), name, value):
            raise LedgerError(f"{self.path}: what is kept as {name} has a wrong checksum; {self.damaged}.")
        return str(value)

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
        with self._alone():
            found = self._run(f"{_SELECT} ORDER BY number DESC LIMIT 2")
            # What was seen last is nearly always one of these two, and need not be asked for.
            seen = any((row[0], row[-1]) == self._seen for row in found) or self.holds(*self._seen)
            if self._identity() != self._opened or not seen:
                raise LedgerError(f"{self.path}: the file was replaced while it was open; {self.damaged}.")
        if not found:
            raise LedgerError(f"{self.path}: found no entries, expected at least one; {self.damaged}.")
        tip = Entry(*found[0])
        # The same two rows as before, to the last letter, have the checksums that were found right then.
        if found != self._checked and not _follows(Entry(*found[1]) if len(found) > 1 else None, tip):
            raise LedgerError(f"{self.path}: the last entry, {tip.number}, has a wrong checksum; {self.damaged}.")
        self._seen, self._checked = (tip.number, tip.digest), found
        return tip

    def entries(self) -> Iterator[Entry]:
        """All rows, oldest first; read in batches, so that a slow reader keeps no process from writing."""
        return _entries(self._run)

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
        self._verify(self._run)
        return self.tip().number

    def _verify(self, run: Run) -> None:
        self._check_schema(run)
        if run("PRAGMA integrity_check(1)") != [("ok",)]:
            raise LedgerError(f"{self.path}: SQLite finds the file inconsistent; {self.damaged}.")
        ((pages,),), ((size,),) = run("PRAGMA page_count"), run("PRAGMA page_size")
        if pages * size > self._real.stat().st_size:  # SQLite reads what is missing of the last page as zeros
            raise LedgerError(f"{self.path}: the file was cut short; {self.damaged}.")
        previous = None
        for entry in _entries(run):
            if not _follows(previous, entry):
                raise LedgerError(f"{self.path}: entry {entry.number} does not follow the last; {self.damaged}.")
            previous = entry
        if self._version(run) == 1:
            return
        query = "SELECT name, value, kept.digest, entry.digest FROM kept LEFT JOIN entry USING (number)"
        for name, value, digest, entry_digest in run(query):
            if digest != _kept_digest(str(entry_digest), name, value):
                raise LedgerError(f"{self.path}: what is kept as {name} has a wrong checksum; {self.damaged}.")

    def _same_process(self) -> None:
        if os.getpid() != self._process:  # SQLite's locks do not survive a fork
            raise LedgerError(f"{self.path}: opened before a fork; open it again in the new process.")
        if self._home.closed:
            raise LedgerError(f"{self.path}: the ledger is closed; {self._failed}.")

    def _run(self, statement: str, *values: object) -> list[Any]:
        self._same_process()
        if self._home.locked:
            return self._connection.execute(statement, values).fetchall()
        with self._alone():
            return self._connection.execute(statement, values).fetchall()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Be the only process that touches the file, for one statement or several; may be nested."""
        if self._home.locked:
            yield
            return
        self._same_process()
        with self._in_words(), self._home.lock():
            if self._home.has_journal():
                self._refuse_foreign_journal()
            yield

    @staticmethod
    def _connect(path: Path, timeout_seconds: float, options: str = "mode=rw") -> sqlite3.Connection:
        # mode=rw: SQLite must never make a new, unspent ledger where an old one has just gone
        uri = f"{path.as_uri()}?{options}"
        connection = sqlite3.connect(uri, uri=True, timeout=timeout_seconds, isolation_level=None)
        # a damaged text must end in a wrong checksum, which names the row, not in a decoding error
        connection.text_factory = partial(str, encoding="utf-8", errors="replace")
        return connection

    def _refuse_foreign_journal(self) -> None:
        """Let SQLite undo a transaction only from the file's own journal; another one would give charges back."""
        found = self._real.stat()
        if not S_ISREG(found.st_mode):
            raise LedgerError(f"{self.path}: {REASONS[sqlite3.SQLITE_CANTOPEN]}; {self._failed}.")
        if found.st_nlink > 1:
            raise LedgerError(
                f"{self.path}: the file has a second name (a hard link), under which it would have a second journal; "
                f"remove the other name. {self._failed.capitalize()}."
            )
        if not self._home.has_journal() or self._home.owns(self._home.token_on_disk()):
            return
        if not self._is_whole_without_journal():
            raise LedgerError(
                f"{self.path}: a transaction was cut off, and the journal that could undo it is not here; put the file "
                f"back beside its own {self._home.journal.name} and open it there, or {self.damaged}."
            )
        self._home.drop_journal()

    def _is_whole_without_journal(self) -> bool:
        connection, self._connection = (
            getattr(self, "_connection", None),
            self._connect(self._real, 0, "mode=ro&immutable=1"),
        )
        try:
            # An immutable file is read as it lies there, without its journal; nothing may be asked about it first.
            self._verify(lambda statement, *values: self._connection.execute(statement, values).fetchall())
        except (LedgerError, sqlite3.Error):
            return False
        finally:
            self._connection.close()
            if connection is None:
                del self._connection
            else:
                self._connection = connection
        return True

    def _begin(self) -> None:
        # Whose file it is comes first: a setting below would be written into another program's file.
        self._check_schema()
        for name, value, expected in PRAGMAS:
            self._run(f"PRAGMA {name} = {value}")
            if (found := self._run(f"PRAGMA {name}")) != [(expected,)]:
                raise LedgerError(f"{self.path}: SQLite refused {name}={value}, found {found}; {self._failed}.")

    def _move_in(self) -> None:
        """Before the first charge here take a new token, so that a journal left anywhere else undoes nothing.

        Only the header changes, which one write replaces as a whole; so no journal is needed, and none is left.
        """
        ((marks,),) = self._run("PRAGMA user_version")
        if not self._home.owns(marks >> 8):
            marks = new_token(self._version())
            for statement in ("journal_mode = MEMORY", f"user_version = {marks}", "journal_mode = TRUNCATE"):
                self._run(f"PRAGMA {statement}")
            self._home.adopt(marks >> 8)
        if marks & 0xFF == 1:
            update = (*KEPT_SCHEMA, f"PRAGMA user_version = {marks - 1 + VERSION}")
            for statement in ("BEGIN IMMEDIATE", *update, "COMMIT"):
                self._run(statement)

    def _make(self, first: Entry) -> None:
        """Make a new ledger under another name first: a file under its own name is whole, or it is damaged."""
        new = self._real.with_name(self._real.name + "-new")
        new.unlink(missing_ok=True)
        new.touch(mode=0o600)
        connection = self._connect(new, 0)
        try:
            marks = (f"PRAGMA application_id = {APPLICATION}", f"PRAGMA user_version = {VERSION}")
            settings = ("PRAGMA journal_mode = OFF", "PRAGMA synchronous = EXTRA", "BEGIN")
            for statement in (*settings, *SCHEMA, *KEPT_SCHEMA, *marks):
                connection.execute(statement)
            connection.execute(_INSERT, _values(_sealed("", first)))
            connection.execute("COMMIT")
        finally:
            connection.close()
        new.rename(self._real)
        sync_folder(self._real.parent)

    def _version(self, run: Run | None = None) -> int:
        return int((run or self._run)("PRAGMA user_version")[0][0]) & 0xFF

    def _check_schema(self, run: Run | None = None) -> None:
        run = run or self._run
        if run("SELECT count(*) FROM sqlite_master") == [(0,)]:
            raise LedgerError(f"{self.path}: the file is empty, expected a ledger; {self.damaged}.")
        if run("PRAGMA application_id") != [(APPLICATION,)]:
            raise LedgerError(f"{self.path}: found another program's file, expected a ledger; give its path.")
        if not 1 <= (found := self._version(run)) <= VERSION:
            raise LedgerError(f"{self.path}: found version {found}, expected {VERSION}; update palmatch.")
        expected = SCHEMA if found == 1 else (*SCHEMA, *KEPT_SCHEMA)
        if not {sql for (sql,) in run("SELECT sql FROM sqlite_master")}.issuperset(expected):
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
        except Locked as error:
            raise LedgerError(f"{self.path}: {REASONS[sqlite3.SQLITE_BUSY]}; {self._failed}.") from error
        except UnicodeDecodeError as error:  # SQLite's own message quotes damaged bytes
            raise LedgerError(f"{self.path}: the file is damaged; {self.damaged}.") from error
        except PermissionError as error:
            raise LedgerError(f"{self.path}: {REASONS[sqlite3.SQLITE_READONLY]}; {self._failed}.") from error
        except OSError as error:
            raise LedgerError(f"{self.path}: {error.strerror}; {self._failed}.") from error


def _entries(run: Run) -> Iterator[Entry]:
    number = 0
    while found := run(f"{_SELECT} WHERE number > ? ORDER BY number LIMIT {BATCH}", number):
        yield from (Entry(*row) for row in found)
        number = found[-1][0]


def _kept_digest(entry_digest: str, name: str, value: str) -> str:
    return blake2b(json.dumps([entry_digest, name, value]).encode(), digest_size=32).hexdigest()


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
