"""Where results go, looked at before they are computed: nothing that was read is written over.

What only shows while writing, such as a full disk, is told by whoever writes.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryFile

from palmatch.data.whole import made_folder
from palmatch.errors import InputError

# What a file of pairs may be called.
_KINDS = (".csv", ".parquet")


def check_outputs(
    *read: Path | None, out: Path | None = None, json: Path | None = None, kinds: tuple[str, ...] = _KINDS
) -> None:
    """Refuse an --out or --json that cannot be a file, or that is one of those that are read."""
    if str(out) == str(json) == "-":
        raise InputError("Only one of --out and --json can be -, the standard output; give the other one by name.")
    out, json = (None if str(path) == "-" else path for path in (out, json))
    if out is not None and out.suffix.lower() not in kinds:
        raise InputError(f"Expected a file that ends in {' or '.join(kinds)}, got --out {out}; choose another name.")
    written = {"--out": out, "--json": json}
    for option, path in written.items():
        if path is not None:
            _check(option, path, [source for source in read if source is not None and str(source) != "-"])
    if out is not None and json is not None and _same(out, json):
        raise InputError(f"Expected two files, got {out} for both --out and --json; choose another name for one.")


def folder_for(out: Path) -> Path:
    """Make the folder of --out, and refuse one that nothing can be written to."""
    try:
        with TemporaryFile(dir=made_folder(out)):
            return out
    except OSError as error:
        raise InputError(f"{out}: cannot be written to ({error.strerror}); choose another --out.") from None


def _check(option: str, path: Path, read: list[Path]) -> None:
    if path.is_dir():
        raise InputError(f"{path} is a directory, expected the name of a file; choose another {option}.")
    if not path.parent.is_dir():
        raise InputError(f"{path} cannot be written: the folder {path.parent} does not exist; create it first.")
    for source in read:
        if _same(path, source):
            raise InputError(f"{path} is read and would be written over; choose another {option}.")


def _same(one: Path, other: Path) -> bool:
    # A file that is not there yet has no identity but its name.
    return one.samefile(other) if one.exists() and other.exists() else one.resolve() == other.resolve()
