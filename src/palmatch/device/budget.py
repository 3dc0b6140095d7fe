"""What a privacy budget is counted in: whole units of ε, limits on them, receipts for what was charged.

This module may not know where charges are kept.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from palmatch.errors import InputError, PalmatchError

UNIT_BITS = 32  # one unit is 2**-32 of ε: fine enough to round up at every charge, and 2**31 of ε can be counted
MOST = 2**63 - 1  # the largest integer that SQLite stores
DAY = 86400

LimitName = Literal["period", "lifetime"]


class BudgetExhausted(PalmatchError):
    """The charge would pass a limit; nothing was written, so the agent must not act. Attributes are in units.

    Attributes
    ----------
    limit:
        Which limit: "period" or "lifetime".
    spent, requested, remaining:
        Units that were charged under it, that were asked for, and that are left.

    Examples
    --------
    >>> from palmatch.device.ledger import BudgetExhausted, units_of
    >>> print(BudgetExhausted("lifetime", spent=units_of(9.5), requested=units_of(1), remaining=units_of(0.5)))
    The lifetime budget is exhausted: ε = 9.5 is spent and 0.5 remains, but 1 was requested.

    References
    ----------
    - [Rogers et al. (NIPS 2016)][]: privacy filters.
    - Page "The command", [ledger][].
    """

    def __init__(self, limit: LimitName, *, spent: int, requested: int, remaining: int) -> None:
        super().__init__(
            f"The {limit} budget is exhausted: ε = {epsilon_text(spent)} is spent and "
            f"{epsilon_text(remaining, up=False)} remains, but {epsilon_text(requested)} was requested."
        )
        self.limit, self.spent, self.requested, self.remaining = limit, spent, requested, remaining

    def __reduce__(self) -> tuple[Callable[[], BudgetExhausted], tuple[()]]:
        # an exception crosses processes by its positional arguments alone, which are the message
        kept = {"spent": self.spent, "requested": self.requested, "remaining": self.remaining}
        return partial(type(self), self.limit, **kept), ()


@dataclass(frozen=True, slots=True)
class Limits:
    """What may be spent, in units; a period begins at a multiple of its length: days at midnight UTC.

    Attributes
    ----------
    lifetime:
        For the whole life of the ledger.
    per_period:
        In each period; None for no such limit.
    period_seconds:
        The length of a period; a day unless given.

    Examples
    --------
    >>> from palmatch.device.ledger import Limits, units_of
    >>> Limits(lifetime=units_of(10), per_period=units_of(1)).period_seconds
    86400

    References
    ----------
    - [Rogers et al. (NIPS 2016)][]: privacy filters.
    - Page "The command", [ledger][].
    """

    lifetime: int
    per_period: int | None = None
    period_seconds: int = DAY


@dataclass(frozen=True, slots=True)
class Receipt:
    """The permission to act once; kept elsewhere, it can later prove that the file still has the charge.

    Attributes
    ----------
    number:
        The number of the row in the ledger.
    time:
        Seconds since 1970.
    matching, purpose:
        What the charge is for.
    units:
        What was charged.
    remaining:
        Units that are left under both limits.
    digest:
        The checksum of the row, which depends on all rows before it.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from palmatch.device.ledger import Ledger, epsilon_of, units_of
    >>> with TemporaryDirectory() as folder:
    ...     with Ledger(Path(folder) / "me.ledger", agent="me", lifetime=units_of(10)) as ledger:
    ...         receipt = ledger.charge(units_of(0.75), matching="monday", purpose="report")
    >>> receipt.matching, epsilon_of(receipt.units), epsilon_of(receipt.remaining)
    ('monday', 0.75, 9.25)

    References
    ----------
    - [Haber, Stornetta (1991)][]: records chained by their digests.
    - Page "The command", [ledger][].
    """

    number: int
    time: int
    matching: str
    purpose: str
    units: int
    remaining: int
    digest: str


def units_of(epsilon: float) -> int:
    """Give the fewest units that cover `epsilon`: rounded up, so that no charge is too small.

    Parameters
    ----------
    epsilon:
        A privacy budget of at least 0.

    Returns
    -------
    int
        Whole units, which a ledger counts.

    Examples
    --------
    >>> from palmatch.device.ledger import epsilon_of, units_of
    >>> epsilon_of(units_of(0.1)) >= 0.1
    True

    References
    ----------
    - [Mironov (CCS 2012)][]: what rounding can do to a guarantee.
    - Page "The guarantee", [Why it holds][]: rounding.
    """
    if not 0 <= epsilon < 2 ** (63 - UNIT_BITS):
        raise InputError(f"Expected epsilon in [0, 2**{63 - UNIT_BITS}), got epsilon={epsilon!r}.")
    return math.ceil(math.ldexp(epsilon, UNIT_BITS))


def epsilon_of(units: int) -> float:
    """Give the smallest float not below `units` in ε: rounded up, so that a report is never too small.

    Parameters
    ----------
    units:
        Whole units of a ledger.

    Returns
    -------
    float
        The same as ε.

    Examples
    --------
    >>> from palmatch.device.ledger import epsilon_of, units_of
    >>> epsilon_of(units_of(0.75))
    0.75

    References
    ----------
    Page "The guarantee", [Why it holds][]: rounding.
    """
    units = whole(units, "units")
    nearest = units / 2**UNIT_BITS
    return nearest if math.ldexp(nearest, UNIT_BITS) >= units else math.nextafter(nearest, math.inf)


def epsilon_text(units: int, *, up: bool = True) -> str:
    """Give units as ε with up to six digits after the point; rounded up, or down for what remains."""
    millionths = -(-units * 10**6 // 2**UNIT_BITS) if up else units * 10**6 // 2**UNIT_BITS
    return f"{millionths // 10**6}.{millionths % 10**6:06d}".rstrip("0").rstrip(".")


def whole(value: int, name: str, *, least: int = 0) -> int:
    """Give a whole number that a ledger can count, or refuse what is none."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InputError(f"Expected {name} to be a whole number, got {name}={value!r}.") from None
    if isinstance(value, bool) or not least <= number <= MOST:
        raise InputError(f"Expected {name} to be a whole number in [{least}, 2**63), got {name}={value!r}.")
    return number
