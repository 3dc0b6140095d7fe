"""Where a ledger file lives: a lock that its processes share, and the proof that a journal beside it is its own.

After a crash SQLite undoes an unfinished transaction from the journal beside the file. If the file has been elsewhere
in between, that journal would undo charges that were made there. So file, journal and the small file `-home` agree on
a token: the file takes a new one wherever it is opened next, before anything is charged there. This module knows file
headers and locks; it may not know what a ledger holds.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

# The file's user_version holds the format in its low byte and the token above it, within 31 bits.
_TOKEN_BITS = 23
_USER_VERSION_AT = 60  # in the header of an SQLite file
_RESERVED_BYTE = 0x40000001  # what SQLite locks while it writes
_PAUSE = 0.001


class Locked(Exception):
    """Another process kept the lock."""


class Home:
    """The `-home` file of one ledger."""

    def __init__(self, path: Path, timeout_seconds: float) -> None:
        self._ledger = path
        self._path = path.with_name(path.name + "-home")
        self.journal = path.with_name(path.name + "-journal")
        self._timeout = timeout_seconds
        self._depth = 0
        self._file = self._open()

    def close(self) -> None:
        """Let go of the file; where nothing was ever charged, leave nothing behind."""
        if self._file >= 0:
            if os.fstat(self._file).st_size == 0 and _try_lock(self._file) and self._is_mine():
                self._path.unlink()
            os.close(self._file)
            self._file = -1

    @property
    def closed(self) -> bool:
        """Whether the file was let go of."""
        return self._file < 0

    @property
    def locked(self) -> bool:
        """Whether this process is the only one that touches the ledger now."""
        return self._depth > 0

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Be the only process that touches the ledger; may be nested."""
        if self._depth == 0:
            self._acquire()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0 and self._file >= 0:
                _unlock(self._file)

    def _acquire(self) -> None:
        until = time.monotonic() + self._timeout
        while True:
            if _try_lock(self._file):
                if self._is_mine():
                    return
                # Another process has removed it, so that a lock on it locks no process out.
                os.close(self._file)
                self._file = self._open()
            elif time.monotonic() > until:
                raise Locked
            else:
                time.sleep(_PAUSE)

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)

    def _is_mine(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._file), self._path.stat())
        except FileNotFoundError:
            return False

    def has_journal(self) -> bool:
        """Tell whether a journal was left behind, by a transaction of a process that is gone."""
        until = time.monotonic() + self._timeout
        while self._journal_size() > 0:
            # Another program, which does not know our lock, may be writing just now.
            if not self._is_being_written():
                return True
            if time.monotonic() > until:
                raise Locked
            time.sleep(_PAUSE)
        return False

    def drop_journal(self) -> None:
        """Make a journal that does not belong to the file undo nothing."""
        with self.journal.open("r+b") as file:
            file.truncate(0)
            os.fsync(file.fileno())

    def owns(self, token: int) -> bool:
        """Tell whether the journal beside a file with this token can only be of a transaction of this file."""
        try:
            found = json.loads(os.pread(self._file, 200, 0))
            return bool(found == [token, self.journal.stat().st_ino])
        except (ValueError, OSError):
            return False

    def token_on_disk(self) -> int:
        """Return the token in the file's header, read without SQLite, which would undo a transaction first."""
        with self._ledger.open("rb") as file:
            file.seek(_USER_VERSION_AT)
            return int.from_bytes(file.read(4), "big") >> 8

    def adopt(self, token: int) -> None:
        """Remember the token of the file that lives here from now on, and its journal."""
        self.journal.touch(mode=0o600)
        content = json.dumps([token, self.journal.stat().st_ino]).encode()
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, content, 0)
        os.fsync(self._file)

    def _journal_size(self) -> int:
        try:
            return self.journal.stat().st_size
        except FileNotFoundError:
            return 0

    def _is_being_written(self) -> bool:
        with self._ledger.open("r+b") as file:
            return not _try_byte(file.fileno(), _RESERVED_BYTE)


def sync_folder(folder: Path) -> None:
    """Make sure that a name stays in a folder after power loss, where the system has folders that can be synced."""
    if hasattr(os, "O_DIRECTORY"):
        file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(file)
        finally:
            os.close(file)


def new_token(version: int) -> int:
    """Return a user_version with this format and a fresh token."""
    return secrets.randbits(_TOKEN_BITS) << 8 | version


if sys.platform == "win32":

    def _try_lock(file: int) -> bool:
        return _try_byte(file, 1 << 20)

    def _unlock(file: int) -> None:
        os.lseek(file, 1 << 20, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_UNLCK, 1)

    def _try_byte(file: int, byte: int) -> bool:
        os.lseek(file, byte, os.SEEK_SET)
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:

    def _try_lock(file: int) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_UN)

    def _try_byte(file: int, byte: int) -> bool:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
        except (BlockingIOError, PermissionError):
            return False
        return True
