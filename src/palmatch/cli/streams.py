"""The standard streams, made fit for what is written to them: any encoding, none at all, and warnings in one line."""

from __future__ import annotations

import codecs
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO, TextIOWrapper

from palmatch.errors import MeaninglessSetting

# How to spell what an output without these letters cannot show.
_SPELT = {
    "α": "alpha",
    "γ": "gamma",
    "δ": "delta",
    "ε": "eps",
    "ζ": "zeta",
    "λ": "lambda",
    "φ": "phi",
    "é": "e",
    "√": "sqrt",
    "±": "+-",
    "×": "x",
    "≤": "<=",
    "µ": "u",
    "°": " degrees",
    "\N{EM DASH}": "-",
    "\N{EN DASH}": "-",
    "\N{HORIZONTAL ELLIPSIS}": "...",
    "\N{NO-BREAK SPACE}": " ",
}


def _spell(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_SPELT.get(letter, "?") for letter in error.object[error.start : error.end]), error.end


codecs.register_error("palmatch", _spell)


def spelt(text: str) -> str:
    """Return a text as the output will show it, so that tables can be laid out with it."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, errors="palmatch").decode(encoding)


@contextmanager
def prepared() -> Iterator[None]:
    """Let both streams show anything, give a closed output a place to go, and show our warnings as one line each."""
    if sys.stdout is None:
        # The output was closed before we began (`>&-`).
        sys.stdout = StringIO()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="palmatch")
    with warnings.catch_warnings():
        told: set[str] = set()

        def show(message: Warning | str, category: type[Warning], *rest: object, **more: object) -> None:
            if not issubclass(category, MeaninglessSetting):
                usual(message, category, *rest, **more)  # type: ignore[arg-type]
            elif str(message) not in told:
                told.add(str(message))
                sys.stderr.write(f"palmatch: warning: {message}\n")

        usual = warnings.showwarning
        warnings.simplefilter("always", MeaninglessSetting)
        warnings.showwarning = show
        yield
