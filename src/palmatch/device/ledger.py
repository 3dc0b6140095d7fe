"""The privacy budget of one agent, kept on its own device for its whole life and across all its matchings.

The rule is charge first, act second: `Ledger.charge` returns a `Receipt` only after the charge is on the disk, with
whatever the act needs to be repeated, so a crash at any instant may lose budget, never privacy. This module counts
whole units; it may not know what an action is, what it costs, or why an agent wants to act.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, Self

from palmatch.device.budget import (
    DAY,
    BudgetExhausted,
    LimitName,
    Limits,
    Receipt,
    epsilon_of,
    units_of,
    whole,
)
from palmatch.device.ledger_file import Entry, LedgerError, LedgerFile
from palmatch.errors import InputError, Refused

__all__ = [
    "DAY",
    "BudgetExhausted",
    "Entry",
    "Ledger",
    "LedgerError",
    "Limits",
    "Receipt",
    "Summary",
    "epsilon_of",
    "raise_limit",
    "reopen",
    "units_of",
]

PATIENCE = 10.0  # seconds; another process holds the file for milliseconds at a time


@dataclass(frozen=True, slots=True)
class Summary:
    """What `palmatch ledger show` prints; the dictionaries hold units, by matching and by start of period.

    Attributes
    ----------
    agent:
        Whose ledger it is.
    limits:
        The limits in force.
    spent, remaining:
        Units, over the whole life.
    period_start, period_spent, period_remaining:
        When the present period began, what was spent in it, and what is left of it; None without such a limit.
    charges:
        How many charges there are.
    by_matching, by_period:
        Units of each matching, and of each period by its start.
    limit_changes:
        The rows that made or changed limits.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from palmatch.device.ledger import Ledger, epsilon_of, units_of
    >>> with TemporaryDirectory() as folder:
    ...     with Ledger(Path(folder) / "me.ledger", agent="me", lifetime=units_of(10)) as ledger:
    ...         receipt = ledger.charge(units_of(0.75), matching="monday", purpose="report")
    ...         summary = ledger.summary()
    >>> summary.charges, epsilon_of(summary.by_matching["monday"])
    (1, 0.75)

    References
    ----------
    Page "The command", [ledger][].
    """

    agent: str
    limits: Limits
    spent: int
    remaining: int
    period_start: int
    period_spent: int
    period_remaining: int | None
    charges: int
    by_matching: dict[str, int]
    by_period: dict[int, int]
    limit_changes: tuple[Entry, ...]


def wall_clock() -> int:
    """Give the seconds since 1970, as the device has them."""
    return int(time.time())


class Ledger:
    """An agent's privacy budget in one SQLite file, shared safely by any number of processes.

    The first opening creates the file with its limits. A later one may state smaller limits, which are
    recorded and hold from then on for every agent, but never larger ones: the guarantee was given when the agent
    first acted, what it has shown since cannot be taken back, and a budget that an edited configuration can
    raise is no budget. `raise_limit` is the one deliberate way, and it leaves a row with time and reason.

    Formal guarantees
    -----------------
    An agent that acts only with a receipt in hand has, at every instant and after any crash, at most `spent()`
    units of acts behind it. No charge takes `spent()` past the lifetime limit in force, nor the charges of
    one period past `per_period`; the end of one period and the start of the next may together hold twice
    that. Whether a charge passes depends on earlier charges, limits and clock alone: where these are public,
    so is a refusal.

    Moving: close every program that uses it and move the one file, or move it with its `-journal` and `-home`. A
    journal that is left behind, or found at the new place, never gives a charge back. A file that was moved alone in
    the middle of a transaction is refused until it is back beside its journal.

    What a file alone cannot know: restoring an old copy of it, or deleting it, gives budget back unnoticed,
    except by a process that still has it open, or with a receipt kept elsewhere (`verify(kept=receipt)`). The
    checksums find accidents, not forgers: they have no key. A clock set forward opens a period early, which
    only the lifetime limit bounds. A clock set back gives nothing back: until it has caught up, the latest
    time charged at counts.

    Parameters
    ----------
    path
        The file; its folder must exist and be writable, since the journal lies beside it.
    agent
        Whose budget this is; the ledger of another agent is refused.
    lifetime, per_period, period_seconds
        The limits in units; without `per_period` only the lifetime counts.
    clock
        Seconds since 1970. It is asked while the file is locked, so that charges are in order.
    timeout_seconds
        How long to wait for another process before a `LedgerError`.
    acting
        Whether errors tell an agent what it must not do, or a reader of its ledger what was found.

    Notes
    -----
    Opening checks every row, which takes a second or two for 100,000. Use it in the process and thread that opened it.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from palmatch.device.ledger import Ledger, epsilon_of, units_of
    >>> with TemporaryDirectory() as folder:
    ...     with Ledger(Path(folder) / "me.ledger", agent="me", lifetime=units_of(10)) as ledger:
    ...         receipt = ledger.charge(units_of(0.75), matching="monday", purpose="report")
    ...         print(epsilon_of(ledger.spent()), epsilon_of(ledger.remaining()), ledger.verify(kept=receipt))
    0.75 9.25 2

    References
    ----------
    - [Dwork, Roth (2014)][], Sec. 3.5: composition.
    - [Rogers et al. (NIPS 2016)][]: privacy filters, which stop an agent before its budget is exceeded.
    - [SQLite][]: what a commit withstands.
    - Page "The command", [ledger][].
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        agent: str,
        lifetime: int,
        per_period: int | None = None,
        period_seconds: int = DAY,
        clock: Callable[[], int] = wall_clock,
        timeout_seconds: float = PATIENCE,
        acting: bool = True,
    ) -> None:
        wanted = _limits(lifetime, per_period, period_seconds)
        self._clock = clock
        # What was found to be pinned: for good, so it need not be read again.
        self._pinned: dict[str, str] = {}
        first = _opening(_text(agent, "agent"), wanted, now=self._now())
        self._file = LedgerFile(Path(path), first, acting=acting, timeout_seconds=timeout_seconds)
        try:
            self.verify()
            self._agree(agent, wanted)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file; every receipt stays valid."""
        self._file.close()

    def charge(
        self,
        units: int,
        *,
        matching: str,
        purpose: str,
        keep: Mapping[str, str] | None = None,
        once: bool = False,
    ) -> Receipt:
        """Record a charge and, once it is on the disk, give the permission to act.

        A refusal is not final, since a smaller charge may still pass: a policy whose proof needs exhaustion to be final
        has to remember it.

        Parameters
        ----------
        units:
            What the act costs.
        matching, purpose:
            What it is for; both are shown by `palmatch ledger show`.
        keep:
            What has to be remembered with the act, by name: charge and values are on the disk, or neither is. A name
            that is known already gets the new value.
        once:
            Refuse a name that is known already: another program has charged for it meanwhile.

        Returns
        -------
        Receipt
            The permission to act.

        Raises
        ------
        BudgetExhausted, LedgerError, Refused
            After any of them, do not act; nothing was charged.
        """
        units = whole(units, "units")
        _text(matching, "matching")
        _text(purpose, "purpose")
        with self._file.transaction():
            tip = self._file.tip()
            now = max(tip.time, self._now())
            standing = self._standing(tip, now)
            if once and any(self._file.kept(name) is not None for name in keep or {}):
                raise Refused("kept", f"{self._file.path}: another program has charged for this already.")
            for limit, (spent, remaining) in standing.items():
                if units > remaining:
                    raise BudgetExhausted(limit, spent=spent, requested=units, remaining=remaining)
            row = {"kind": "charged", "time": now, "matching": matching, "purpose": purpose}
            entry = self._file.append(tip, **row, units=units, spent=tip.spent + units)
            for name, value in (keep or {}).items():
                self._file.keep(_text(name, "name"), value, entry, new=once)
        self._file.confirm(entry)
        left = min(remaining for _, remaining in standing.values()) - units
        return Receipt(entry.number, now, matching, purpose, units, left, entry.digest)

    def kept(self, name: str) -> str | None:
        """Give what was remembered under a name, or None.

        Parameters
        ----------
        name:
            A name of `keep` or `pin`.

        Returns
        -------
        str or None
            Its value.
        """
        return self._file.kept(name)

    def pin(self, name: str, value: str) -> None:
        """Remember a public fact for good, or refuse one that differs from what is remembered.

        Parameters
        ----------
        name, value:
            The fact, such as the partition of the map.
        """
        if self._pinned.get(name) == value:
            return
        known = self._file.kept(name)
        if known is None:
            with self._file.transaction():
                # Another process may have been here meanwhile.
                known = self._file.kept(name)
                if known is None:
                    self._file.keep(_text(name, "name"), value, self._file.tip())
        if known is not None and known != value:
            raise Refused(name, f"{self._file.path}: found another {name} than the one that the ledger knows, refused.")
        self._pinned[name] = value

    def spent(self) -> int:
        """Units charged since the ledger was made.

        Returns
        -------
        int
            Units.
        """
        return self._file.tip().spent

    def remaining(self) -> int:
        """Units that could be charged now, under both limits.

        Returns
        -------
        int
            Units.
        """
        tip = self._file.tip()
        return min(left for _, left in self._standing(tip, max(tip.time, self._now())).values())

    def entries(self) -> Iterator[Entry]:
        """All rows, oldest first; a slow reader keeps no other process from charging.

        Returns
        -------
        Iterator[Entry]
            Charges and changes of limits.
        """
        return self._file.entries()

    def summary(self) -> Summary:
        """Add up everything, by matching and by period.

        Returns
        -------
        Summary
            Totals.
        """
        entries = tuple(self.entries())
        tip, by_matching, by_period = entries[-1], defaultdict[str, int](int), defaultdict[int, int](int)
        charges = [entry for entry in entries if entry.kind == "charged"]
        for entry in charges:
            by_matching[entry.matching] += entry.units
            by_period[_start(entry.time, tip.period_seconds)] += entry.units
        start = _start(max(tip.time, self._now()), tip.period_seconds)
        period_spent = by_period.get(start, 0)
        return Summary(
            agent=tip.agent,
            limits=_limits_of(tip),
            spent=tip.spent,
            remaining=max(0, tip.lifetime - tip.spent),
            period_start=start,
            period_spent=period_spent,
            period_remaining=None if tip.per_period is None else max(0, tip.per_period - period_spent),
            charges=len(charges),
            by_matching=dict(by_matching),
            by_period=dict(by_period),
            limit_changes=tuple(entry for entry in entries if entry.kind != "charged"),
        )

    def verify(self, *, kept: Receipt | None = None) -> int:
        """Check the file, every row's checksum and total, and that a receipt `kept` elsewhere is still in it.

        Parameters
        ----------
        kept:
            A receipt that was kept elsewhere.

        Returns
        -------
        int
            The number of rows.

        Raises
        ------
        LedgerError
            At the first thing that does not fit.
        """
        rows = self._file.verify()
        if kept is not None and not self._file.holds(kept.number, kept.digest):
            raise LedgerError(
                f"{self._file.path}: charge {kept.number} of the receipt is missing, as in an older copy; "
                f"{self._file.damaged}."
            )
        return rows

    def _now(self) -> int:
        return whole(self._clock(), "clock()")

    def _standing(self, tip: Entry, now: int) -> dict[LimitName, tuple[int, int]]:
        """Units spent and remaining under each limit; the lifetime first: no waiting helps there."""
        standing: dict[LimitName, tuple[int, int]] = {}
        standing["lifetime"] = tip.spent, max(0, tip.lifetime - tip.spent)
        if tip.per_period is not None:
            spent = tip.spent - self._file.spent_before(_start(now, tip.period_seconds))
            standing["period"] = spent, max(0, tip.per_period - spent)
        return standing

    def _agree(self, agent: str, wanted: Limits) -> None:
        tip = self._file.tip()
        if tip.agent != agent:
            raise InputError(
                f"{self._file.path}: found the ledger of agent {tip.agent!r}, expected that of {agent!r};"
                " give every agent a file of its own."
            )
        if _limits_of(tip) != wanted:
            self._change_limits(wanted, kind="lowered", reason="opened with smaller limits")

    def _change_limits(self, wanted: Limits, *, kind: Literal["lowered", "raised"], reason: str) -> None:
        with self._file.transaction():
            tip = self._file.tip()
            looser = _looser(_limits_of(tip), wanted)
            if kind == "lowered" and looser:
                raise InputError(
                    f"{self._file.path}: found {looser}, expected no more than the ledger allows;"
                    " state smaller limits, or call raise_limit with a reason."
                )
            if kind == "raised" and not looser:
                raise InputError(f"{self._file.path}: {wanted} raises nothing; open the ledger with it instead.")
            row = {"kind": kind, "time": max(tip.time, self._now()), "matching": "", "purpose": reason}
            self._file.append(tip, **row, units=0, **asdict(wanted))


def reopen(
    path: str | os.PathLike[str],
    *,
    clock: Callable[[], int] = wall_clock,
    timeout_seconds: float = PATIENCE,
    acting: bool = False,
) -> Ledger:
    """Open an existing ledger under the agent and the limits that it holds, for example to show it."""
    file = LedgerFile(Path(path), None, acting=acting, timeout_seconds=timeout_seconds)
    try:
        tip = file.tip()
    finally:
        file.close()
    limits = asdict(_limits_of(tip))
    return Ledger(path, agent=tip.agent, **limits, clock=clock, timeout_seconds=timeout_seconds, acting=acting)


def raise_limit(
    path: str | os.PathLike[str],
    *,
    lifetime: int,
    per_period: int | None,
    period_seconds: int = DAY,
    reason: str,
    clock: Callable[[], int] = wall_clock,
) -> None:
    """Put larger limits in force, with time and reason on record: a weaker guarantee, for past acts too.

    A program that goes on opening the ledger with the smaller limits lowers them again.
    """
    wanted = _limits(lifetime, per_period, period_seconds)
    _text(reason, "reason")
    with reopen(path, clock=clock) as ledger:
        ledger._change_limits(wanted, kind="raised", reason=reason)


def _opening(agent: str, limits: Limits, *, now: int) -> Entry:
    return Entry(
        number=1,
        kind="opened",
        time=now,
        agent=agent,
        matching="",
        purpose="opened",
        units=0,
        spent=0,
        lifetime=limits.lifetime,
        per_period=limits.per_period,
        period_seconds=limits.period_seconds,
        digest="",
    )


def _looser(stored: Limits, wanted: Limits) -> str | None:
    """Name what `wanted` allows and `stored` does not; periods of different lengths cannot be compared."""
    if wanted.lifetime > stored.lifetime:
        return f"lifetime={wanted.lifetime} where {stored.lifetime} is stored"
    if stored.per_period is None:
        return None
    if wanted.per_period is None or wanted.per_period > stored.per_period:
        return f"per_period={wanted.per_period} where {stored.per_period} is stored"
    if wanted.period_seconds != stored.period_seconds:
        return f"period_seconds={wanted.period_seconds} where {stored.period_seconds} is stored"
    return None


def _limits_of(entry: Entry) -> Limits:
    return Limits(entry.lifetime, entry.per_period, entry.period_seconds)


def _limits(lifetime: int, per_period: int | None, period_seconds: int) -> Limits:
    period = None if per_period is None else whole(per_period, "per_period")
    return Limits(whole(lifetime, "lifetime"), period, whole(period_seconds, "period_seconds", least=1))


def _start(second: int, period_seconds: int) -> int:
    return second - second % period_seconds


def _text(value: str, name: str) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise InputError(f"Expected {name} to be a printable text, got {name}={value!r}.")
    return value
