"""Writes a file whole or not at all: the one way in which palmatch leaves files behind.

The bytes go to a temporary file in the same folder, which is renamed when it is complete and on the disk. So a crash, a
signal or a full disk leaves the old file or the new one, and nothing beside it. What is in a file is not known here.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from palmatch.errors import InputError


def write_atomic(path: str | os.PathLike[str], content: bytes | str, *, private: bool = False) -> None:
    """Write bytes, or text as UTF-8, for this user alone to read if `private`; a failure becomes one sentence."""
    target = Path(path)
    data = content.encode("utf-8") if isinstance(content, str) else content
    try:
        # A rename would put a plain file in the place of a link, so the file behind the link is the one to replace.
        behind = target.resolve()
        if behind.exists() and not behind.is_file():
            # A pipe or a device has no place beside it to write to first; a folder says so itself.
            with behind.open("wb") as handle:
                handle.write(data)
        else:
            _replace(behind, data, 0o600 if private else 0o666)
    except (OSError, RuntimeError, ValueError) as error:  # beside the disk's: a circle of links, a NUL in the name
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"{target} cannot be written ({reason}); check its name, the folder's permissions and the free space."
        ) from error


def write_once(path: Path, content: bytes) -> bytes:
    """Write a file unless it is there; return what is in it then, which whoever came first has written.

    The name is given to complete bytes that are on the disk, and a name that is given is never given again.
    """
    partial = path.with_name(f".{path.name[:200]}.{secrets.token_hex(4)}.part")
    try:
        _write_to_disk(partial, content, 0o600)
        with suppress(FileExistsError):
            os.link(partial, path)
        _sync(path.parent)
    finally:
        partial.unlink(missing_ok=True)
    return path.read_bytes()


def make_folder(folder: Path, *, private: bool = False) -> Path:
    """Return a folder, made if need be, for this user alone if `private`; a failure becomes one sentence."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if private:
            folder.chmod(0o700)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made a folder ({error.strerror}); choose another --out.") from None
    return folder


def _replace(target: Path, data: bytes, mode: int) -> None:
    partial = target.with_name(f".{target.name[:200]}.{secrets.token_hex(4)}.part")
    try:
        _write_to_disk(partial, data, mode)
        partial.replace(target)
        _sync(target.parent)
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def _write_to_disk(path: Path, data: bytes, mode: int) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())


def _sync(folder: Path) -> None:
    """Put the new name on the disk, where the system lets a folder be opened for it."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
