"""Finds what others have written for palmatch: by an entry point, or at "module:name" (also in the working directory).

It knows nothing of what it finds; those who ask check it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

from palmatch.errors import InputError


def load_object(name: str, what: str) -> object:
    """Return the object at "module:name", or refuse in one sentence; `what` says what should be there."""
    module, _, attribute = name.partition(":")
    here = str(Path.cwd())
    # The command of an installed package does not look where it is started, but a user's module often lies there.
    sys.path.append(here)
    try:
        return getattr(import_module(module), attribute)
    except Exception as error:
        raise InputError(f"Expected {what} at {name!r} (module:name), but {_reason(error)}.") from error
    finally:
        sys.path.remove(here)


def _reason(error: Exception) -> str:
    if isinstance(error, ImportError | AttributeError):
        return str(error)
    return f"importing the module raised {type(error).__name__}: {error}"


def iter_entry_points(group: str) -> Iterator[tuple[str, str, object]]:
    """Give name, source and object of every entry point of a group."""
    for point in entry_points(group=group):
        try:
            yield point.name, point.value, point.load()
        except Exception as error:
            raise InputError(
                f"The entry point {point.name!r} of {group} cannot be loaded ({_reason(error)}): "
                "reinstall or remove the package that brings it."
            ) from error
