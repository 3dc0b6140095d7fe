"""The board's journal: what it has said and what it has been told, in SQLite, written before anything is published.

A board that was killed at any instant reads it and goes on as if nothing had happened. It holds nothing that is not on
the bus, but for the randomness of a game until its roster is published.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from palmatch.errors import InputError, PalmatchError
from palmatch.live.codec import Envelope, decode
from palmatch.live.topics import Topic

_TABLES = Path(__file__).with_name("journal.sql").read_text(encoding="utf-8")


# Between two attempts to write on a full disk.
DISK_SECONDS = 2.0


class CannotWrite(PalmatchError):
    """There is no room for a journal; nothing since the last commit counts."""


@dataclass(frozen=True, slots=True)
class Held:
    """A resource that an agent got in a game, the agent's one-time key and its tag, and since when."""

    game: str
    name: str
    tag: bytes
    key: bytes
    since: float


def open_books(
    path: Path, tables: str, what: str, isolation_level: Literal["DEFERRED"] | None = "DEFERRED"
) -> sqlite3.Connection:
    """Open a database, made if need be, that its owner alone can read; SQLite's files beside it get the same rights."""
    try:
        if str(path) != ":memory:":
            os.close(os.open(path, os.O_RDONLY | os.O_CREAT, 0o600))
            if path.stat().st_mode & 0o077:
                path.chmod(0o600)
        books = sqlite3.connect(path, timeout=1.0, isolation_level=isolation_level)
        books.executescript(tables)
    except (sqlite3.Error, OSError) as error:
        raise InputError(f"{path}: cannot be used as {what} journal: {error}.") from None
    return books


class Journal:
    """One board's journal. Nothing counts until `commit`, which is one fsync.

    On a full disk `commit` raises `CannotWrite`, also for what could not be written before it: whoever writes something
    down on receiving it need not be ready for that. The journal is then as after the commit before.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._failed = path, ""
        self._books = open_books(path, _TABLES, "a board's")

    def series(self, board: bytes) -> str:
        """Return what the names of all games begin with: no other journal, and no other board, gives them again.

        It has the board's key of the first game; a later key changes nothing.
        """
        found = "SELECT id, board FROM journal"
        name, first = self._books.execute(found).fetchone()
        if first is None:
            first = hashlib.sha256(board).hexdigest()[:8]
            self._books.execute("UPDATE journal SET board = ?", (first,))
            self._books.commit()
        return f"{first}-{name}"

    def close(self) -> None:
        """Close the journal; what is not committed is lost, as if the board had been killed."""
        self._books.close()

    def commit(self) -> None:
        """Make all of it last."""
        try:
            if not self._failed:
                self._books.commit()
                return
        except sqlite3.OperationalError as error:
            self._failed = str(error)
        failed, self._failed = self._failed, ""
        self._books.rollback()
        raise CannotWrite(f"{self._path}: cannot be written: {failed}.")

    def _write(self, statement: str, values: tuple[object, ...]) -> None:
        if not self._failed:
            try:
                self._books.execute(statement, values)
            except sqlite3.OperationalError as error:
                self._failed = str(error)

    def begin(self, game: str, randomness: bytes) -> bytes:
        """Return the randomness of a game: this one for a game that is not known, which is begun."""
        self._write(
            "INSERT OR IGNORE INTO game (name, number, randomness) "
            "VALUES (?, (SELECT coalesce(max(number), -1) + 1 FROM game), ?)",
            (game, randomness),
        )
        if self._failed:
            self.commit()
        return bytes(self._books.execute("SELECT randomness FROM game WHERE name = ?", (game,)).fetchone()[0])

    def is_begun(self, game: str) -> bool:
        """Tell whether there is such a game, over or not."""
        return self._books.execute("SELECT 1 FROM game WHERE name = ?", (game,)).fetchone() is not None

    def unfinished(self) -> list[str]:
        """Return the games that are not over, the oldest first."""
        return [name for (name,) in self._books.execute("SELECT name FROM game WHERE NOT over ORDER BY number")]

    def finished(self) -> list[str]:
        """Return the games that are over and were not forgotten, the oldest first."""
        found = "SELECT name FROM game WHERE over AND name IN (SELECT game FROM said) ORDER BY number"
        return [name for (name,) in self._books.execute(found)]

    def games(self) -> int:
        """Return how many games there have been, those that were forgotten included."""
        return int(self._books.execute("SELECT coalesce(max(number), -1) + 1 FROM game").fetchone()[0])

    def before(self, game: str) -> list[str]:
        """Return the games before this one, or all where it has not begun, the newest first."""
        found = self._books.execute(
            "SELECT name FROM game WHERE number < coalesce((SELECT number FROM game WHERE name = ?), 1 << 60) "
            "ORDER BY number DESC",
            (game,),
        )
        return [name for (name,) in found]

    def finish(self, game: str) -> None:
        """Note that a game's result is published."""
        self._write("UPDATE game SET over = 1 WHERE name = ?", (game,))

    def say(self, topic: Topic, packet: bytes) -> None:
        """Note what is about to be published."""
        self._write("INSERT INTO said (game, topic, packet) VALUES (?, ?, ?)", (topic.game, str(topic), packet))

    def said(self, game: str) -> Iterator[Envelope]:
        """Return what was published in a game, in its order."""
        found = self._books.execute("SELECT topic, packet FROM said WHERE game = ? ORDER BY number", (game,))
        for topic, packet in found.fetchall():
            yield decode(topic, packet)

    def packets(self, game: str) -> list[tuple[str, bytes]]:
        """Return the last packet of each topic, to be published again."""
        found = self._books.execute("SELECT topic, packet FROM said WHERE game = ? ORDER BY number", (game,))
        return list(dict(found.fetchall()).items())

    def hear(self, slot: int, topic: Topic, packet: bytes) -> None:
        """Note an accepted message of a device; joins have slot -1."""
        self._write(
            "INSERT INTO told (game, slot, topic, packet) VALUES (?, ?, ?, ?)", (topic.game, slot, str(topic), packet)
        )

    def told(self, game: str, slot: int) -> list[Envelope]:
        """Return the accepted messages of a slot, in their order."""
        found = self._books.execute(
            "SELECT topic, packet FROM told WHERE game = ? AND slot = ? ORDER BY number", (game, slot)
        )
        return [decode(topic, packet) for topic, packet in found.fetchall()]

    def close_slot(self, game: str, slot: int) -> None:
        """Note that nothing more is accepted for a slot."""
        self._write("INSERT OR IGNORE INTO closed VALUES (?, ?)", (game, slot))

    def is_closed(self, game: str, slot: int) -> bool:
        """Tell whether a slot is closed; that of the joins is -1."""
        found = self._books.execute("SELECT 1 FROM closed WHERE game = ? AND slot = ?", (game, slot))
        return found.fetchone() is not None

    def hold(self, held: Held) -> None:
        """Note that a resource is held."""
        row = (held.game, held.name, held.tag, held.key, held.since)
        self._write("INSERT OR REPLACE INTO held VALUES (?, ?, ?, ?, ?)", row)

    def release(self, game: str, name: str) -> None:
        """Note that a resource is free again."""
        self._write("DELETE FROM held WHERE game = ? AND name = ?", (game, name))

    def held(self) -> list[Held]:
        """Return what is held."""
        return [Held(*row) for row in self._books.execute("SELECT game, name, tag, key, since FROM held")]

    def forget(self, game: str) -> None:
        """Drop what was said and told in a game that is over; its name stays, so that it is never opened again."""
        for table in ("said", "told", "closed"):
            self._write(f"DELETE FROM {table} WHERE game = ?", (game,))


# Games whose result devices may still have to read: published again after a restart of board or broker. An agent that
# waits can use its report for as long.
KEPT_GAMES = 10
