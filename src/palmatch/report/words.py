"""Numbers in words; it imports little, so that a command that draws nothing starts fast."""

from __future__ import annotations

from collections.abc import Sequence
from math import isinf


def percent(fraction: float) -> str:
    """Return a fraction in per cent with one decimal, and never a minus before a zero."""
    return f"{round(100 * fraction, 1) + 0.0:.1f}\N{NO-BREAK SPACE}%"


def counted(number: float, what: str, plural: str | None = None) -> str:
    """Return a number of things in words: 1 agent, 2 agents; `plural` where an s does not make it."""
    return f"{number:,} {what if number == 1 else plural or f'{what}s'}"


def epsilon_text(value: float, digits: int = 2) -> str:
    """Return an ε with so many decimals, never below what it is."""
    if isinf(value):
        return "none"
    short = f"{value:.{digits}f}"
    return short if float(short) >= value else f"{float(short) + 10**-digits:.{digits}f}"


def listed(values: Sequence[object]) -> str:
    """Return values with commas and an "and"."""
    texts = [str(value) for value in values]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def short(number: float) -> str:
    """Return a number without a decimal that is zero."""
    return f"{number:,.0f}" if number == round(number) else f"{number:,.1f}"
