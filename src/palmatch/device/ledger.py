"""The privacy budget of one agent: one append-only file on its own device, for its whole life and all its matchings.

The rule is charge first, act second: `Ledger.charge` returns a `Receipt` only after the charge is on the disk, with
whatever the act needs to be repeated, so a crash at any instant may lose budget, never privacy. This module counts
whole units; it may not know what an action is, what it costs, or why an agent wants to act.
"""

from __future__ import annotations

import json
import math
import operator
import os
import platform
import sys
import tempfile
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from palmatch.errors import InputError, PalmatchError, Refused

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

# One unit is 2^-32 of ε: fine enough to round up at every charge, and 2^31 of ε can be counted.
UNIT_BITS, MAX_UNITS = 32, 2**63 - 1
DAY = 86400

LimitName = Literal["period", "lifetime"]


# --- units of ε ----------------------------------------------------------------------------------------------------


def units_of(epsilon: float) -> int:
    """Units ⌈ε·2^32⌉ of an ε: rounded up, so that no charge is too small.

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
    """Smallest float of at least units·2^-32: rounded up, so that a report is never too small.

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
    units = _whole(units, "units")
    nearest = units / 2**UNIT_BITS
    return nearest if math.ldexp(nearest, UNIT_BITS) >= units else math.nextafter(nearest, math.inf)


def epsilon_text(units: int, *, up: bool = True) -> str:
    """Units as ε with up to six decimals; rounded up, or down for what remains."""
    millionths = -(-units * 10**6 // 2**UNIT_BITS) if up else units * 10**6 // 2**UNIT_BITS
    return f"{millionths // 10**6}.{millionths % 10**6:06d}".rstrip("0").rstrip(".")


def _whole(value: int, name: str, *, least: int = 0) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise InputError(f"Expected {name} to be a whole number, got {name}={value!r}.") from None
    if isinstance(value, bool) or not least <= number <= MAX_UNITS:
        raise InputError(f"Expected {name} to be a whole number in [{least}, 2**63), got {name}={value!r}.")
    return number


# --- clocks --------------------------------------------------------------------------------------------------------


class Now(NamedTuple):
    """What a device knows of the time, in whole seconds.

    Attributes
    ----------
    time:
        Since 1970, by the time of day, which can be set.
    boot:
        A name of this start of this device.
    uptime:
        Since that start, by a clock that cannot be set.
    """

    time: int
    boot: str
    uptime: int


@cache
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return platform.node()


def device_clock() -> Now:
    """Time of day, and the time since the device was started."""
    uptime = time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()
    return Now(int(time.time()), _boot(), int(uptime))


def _read(clock: Callable[[], Now]) -> dict[str, Any]:
    now = clock()
    _whole(now.time, "clock().time")
    _whole(now.uptime, "clock().uptime")
    return now._asdict()


def _elapsed(since: Entry, now: Now) -> int:
    """Seconds that have passed for sure since an entry, whatever the time of day was set to.

    Within one start of the device the uptime tells. After a restart no more than the new uptime has passed for sure,
    nor, for a file that was brought to another device, more than the time of day says.
    """
    if now.boot == since.boot and now.uptime >= since.uptime:
        return now.uptime - since.uptime
    return max(0, min(now.uptime, now.time - since.time))


# --- records -------------------------------------------------------------------------------------------------------


class LedgerError(PalmatchError):
    """The ledger cannot be relied on just now: no receipt was given, so an agent must not act."""


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

    def __init__(self, limit: LimitName, spent: int, requested: int, remaining: int) -> None:
        # An exception crosses processes by its positional arguments alone.
        super().__init__(limit, spent, requested, remaining)
        self.limit, self.spent, self.requested, self.remaining = limit, spent, requested, remaining

    def __str__(self) -> str:
        """Say which limit, and how much of it is left."""
        return (
            f"The {self.limit} budget is exhausted: ε = {epsilon_text(self.spent)} is spent and "
            f"{epsilon_text(self.remaining, up=False)} remains, but {epsilon_text(self.requested)} was requested."
        )


@dataclass(frozen=True, slots=True)
class Limits:
    """What may be spent, in units.

    Attributes
    ----------
    lifetime:
        For the whole life of the ledger.
    per_period:
        In any window of the length of a period, whenever it begins; None for no such limit.
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
        The number of the line in the ledger.
    time:
        Seconds since 1970.
    matching, purpose:
        What the charge is for.
    units:
        What was charged.
    remaining:
        Units that are left under both limits.
    digest:
        The checksum of the line, which depends on all lines before it.

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


@dataclass(frozen=True, slots=True)
class Entry:
    """One line: a charge, a fact, or a change of limits; totals and limits are those after it.

    `age` counts the seconds that have passed for sure from line to line; `kept` is what is to be remembered from this
    line on, by name.
    """

    number: int = 0
    kind: Literal["opened", "charged", "kept", "lowered", "raised"] = "opened"
    agent: str = ""
    time: int = 0
    boot: str = ""
    uptime: int = 0
    age: int = 0
    matching: str = ""
    purpose: str = ""
    units: int = 0
    spent: int = 0
    lifetime: int = 0
    per_period: int | None = None
    period_seconds: int = DAY
    kept: Mapping[str, str] = field(default_factory=dict)
    digest: str = ""

    @property
    def limits(self) -> Limits:
        """The limits in force after this line."""
        return Limits(self.lifetime, self.per_period, self.period_seconds)


@dataclass(frozen=True, slots=True)
class Summary:
    """What `palmatch ledger show` prints, in units.

    Attributes
    ----------
    agent:
        Whose ledger it is.
    limits:
        The limits in force.
    spent, remaining:
        Over the whole life.
    period_spent, period_remaining:
        What was spent in the period that ends now, and what is left of it; None without such a limit.
    lines, charges:
        How many lines there are, and how many of them are charges.
    limit_changes:
        The lines that made or changed limits.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from palmatch.device.ledger import Ledger, epsilon_of, units_of
    >>> with TemporaryDirectory() as folder:
    ...     with Ledger(Path(folder) / "me.ledger", agent="me", lifetime=units_of(10)) as ledger:
    ...         receipt = ledger.charge(units_of(0.75), matching="monday", purpose="report")
    ...         summary = ledger.summary()
    >>> summary.charges, epsilon_of(summary.spent)
    (1, 0.75)

    References
    ----------
    Page "The command", [ledger][].
    """

    agent: str
    limits: Limits
    spent: int
    remaining: int
    period_spent: int
    period_remaining: int | None
    lines: int
    charges: int
    limit_changes: tuple[Entry, ...]


# --- lines ---------------------------------------------------------------------------------------------------------

# After the heading, a line is the checksum of the line before and of the JSON text that follows it. It counts only
# with its newline, which is the last byte of a write; what has none was cut off by a crash, and no receipt was given.
# The text says what has happened; numbers, ages and totals follow from the lines before.
HEADING = b"palmatch ledger 3\n"
_SQLITE = b"SQLite format 3\0"
_BEFORE = Entry()


def _digest(previous: str, text: bytes) -> str:
    return blake2b(previous.encode() + text, digest_size=32).hexdigest()


def _following(previous: Entry, text: bytes) -> Entry:
    """Entry of a line's text after the entry of the line before."""
    blank = {"matching": "", "purpose": "", "units": 0, "kept": {}}
    entry = replace(previous, **{**blank, **json.loads(text)}, digest=_digest(previous.digest, text))
    age = previous.age + _elapsed(previous, Now(entry.time, entry.boot, entry.uptime))
    return replace(entry, number=previous.number + 1, age=age, spent=previous.spent + entry.units)


def _line(previous: Entry, facts: Mapping[str, Any]) -> bytes:
    text = json.dumps(facts, separators=(",", ":")).encode()
    return b"%s %s\n" % (_digest(previous.digest, text).encode(), text)


# --- the ledger ----------------------------------------------------------------------------------------------------

# Another process holds the file for milliseconds at a time.
LOCK_SECONDS, _PAUSE_SECONDS = 10.0, 0.001


class Ledger:
    """An agent's privacy budget in one append-only file, shared safely by any number of processes.

    The first opening creates the file with its limits. A later one may state smaller limits, which are
    recorded and hold from then on for every program, but never larger ones: the guarantee was given when the agent
    first acted, what it has shown since cannot be taken back, and a budget that an edited configuration can
    raise is no budget. `raise_limit` is the one deliberate way, and it leaves a line with time and reason.

    Formal guarantees
    -----------------
    An agent that acts only with a receipt in hand has, at every instant and after any crash, at most `spent()`
    units of acts behind it. No charge takes `spent()` past the lifetime limit in force, nor the charges of
    *any* window of `period_seconds` past `per_period`. Whether a charge passes depends on earlier charges, limits and
    clocks alone: where these are public, so is a refusal.

    A time of day that is set forward or back gives nothing back: what counts is how long the device has run since a
    charge. The time for which it was switched off is not counted.

    Moving: close every program that uses it and move the one file.

    What a file alone cannot know: restoring an old copy of it, cutting off its last lines, or deleting it gives budget
    back unnoticed, except by a process that still has it open, or with a receipt kept elsewhere
    (`verify(kept=receipt)`). The checksums find accidents, not forgers: they have no key.

    Parameters
    ----------
    path
        The file.
    agent
        Whose budget this is; the ledger of another agent is refused.
    lifetime, per_period, period_seconds
        The limits in units; without `per_period` only the lifetime counts.
    clock
        Asked while the file is locked, so that charges are in order. A simulation gives its own.
    timeout_seconds
        How long to wait for another process before a `LedgerError`.

    Notes
    -----
    Opening checks every line, which takes a second or two for 100,000. Use it in the process and thread that opened it.

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
        clock: Callable[[], Now] = device_clock,
        timeout_seconds: float = LOCK_SECONDS,
    ) -> None:
        wanted = _limits(lifetime, per_period, period_seconds)
        first = {"agent": _text(agent, "agent"), **_read(clock), "purpose": "opened", **asdict(wanted)}
        with _in_words(Path(path), _AGENT):
            if not Path(path).exists():
                _make(Path(path).resolve(), HEADING + _line(_BEFORE, first))
        self._open(Path(path), clock, timeout_seconds, acting=True)
        try:
            with self._locked() as tip:
                if self._keeper != agent:
                    raise InputError(
                        f"{self.path}: found the ledger of agent {self._keeper!r}, expected that of {agent!r};"
                        " give every agent a file of its own."
                    )
                if looser := _looser(tip.limits, wanted):
                    raise InputError(
                        f"{self.path}: found {looser}, expected no more than the ledger allows;"
                        " state smaller limits, or call raise_limit with a reason."
                    )
                if tip.limits != wanted:
                    self._append(kind="lowered", purpose="opened with smaller limits", **asdict(wanted))
        except BaseException:
            self.close()
            raise

    def _open(self, path: Path, clock: Callable[[], Now], timeout_seconds: float, *, acting: bool) -> None:
        self.path, self._clock, self._timeout = path, clock, timeout_seconds
        self._advice = _AGENT if acting else _READER
        self._home = os.getpid(), threading.get_ident()
        self._entries: list[Entry] = []
        self._kept: dict[str, str] = {}
        # Age and total after each charge, by owner.
        self._accounts: dict[str, list[tuple[int, int]]] = {}
        self._end, self._last = len(HEADING), HEADING
        with _in_words(path, self._advice):
            self._real = path.resolve()
            self._file = self._real.open("r+b" if acting else "rb", buffering=0)
        try:
            self._refuse_others()
            with self._locked():
                pass
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

    # --- what agents do ---

    def charge(
        self,
        units: int,
        *,
        matching: str,
        purpose: str,
        keep: Mapping[str, str] | None = None,
        expected: Mapping[str, str | None] | None = None,
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
        expected:
            What was remembered by name when the act was decided (None: nothing). If any of it has changed since,
            another program has acted meanwhile, and the charge is Refused.

        Returns
        -------
        Receipt
            The permission to act.

        Raises
        ------
        BudgetExhausted, LedgerError, Refused
            After any of them, do not act; nothing was charged.
        """
        units = _whole(units, "units")
        _text(matching, "matching")
        _text(purpose, "purpose")
        with self._locked() as tip:
            if any(self._kept.get(name) != value for name, value in (expected or {}).items()):
                raise Refused("kept", f"{self.path}: another program has acted meanwhile; let one alone play.")
            standing = self._standing(tip, self._keeper)
            for limit, (spent, remaining) in standing.items():
                if units > remaining:
                    raise BudgetExhausted(limit, spent=spent, requested=units, remaining=remaining)
            entry = self._append(kind="charged", matching=matching, purpose=purpose, units=units, kept=_texts(keep))
        left = min(remaining for _, remaining in standing.values()) - units
        return Receipt(entry.number, entry.time, matching, purpose, units, left, entry.digest)

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
        with self._locked():
            return self._kept.get(name)

    def keep(self, values: Mapping[str, str]) -> None:
        """Remember values by name, for free; a name that is known already gets the new value.

        Parameters
        ----------
        values:
            What is remembered, by name.
        """
        with self._locked():
            if any(self._kept.get(name) != value for name, value in values.items()):
                self._append(kind="kept", kept=_texts(values))

    def pin(self, name: str, value: str) -> None:
        """Remember a public fact for good, or refuse one that differs from what is remembered.

        Parameters
        ----------
        name, value:
            The fact, such as the partition of the map.
        """
        with self._locked():
            known = self._kept.get(name)
            if known is None:
                self._append(kind="kept", kept=_texts({name: value}))
            elif known != value:
                raise Refused(name, f"{self.path}: found another {name} than the one that the ledger knows, refused.")

    # --- what is in it ---

    def spent(self) -> int:
        """Units charged since the ledger was made.

        Returns
        -------
        int
            Units.
        """
        with self._locked() as tip:
            return tip.spent

    def remaining(self) -> int:
        """Units that could be charged now, under both limits.

        Returns
        -------
        int
            Units.
        """
        with self._locked() as tip:
            return min(left for _, left in self._standing(tip, self._keeper).values())

    def entries(self) -> Iterator[Entry]:
        """All lines up to now, oldest first; a slow reader keeps no other process from charging.

        Returns
        -------
        Iterator[Entry]
            Charges, facts and changes of limits.
        """
        with self._locked():
            return iter(tuple(self._entries))

    def summary(self) -> Summary:
        """Add up everything.

        Returns
        -------
        Summary
            Totals.
        """
        entries = tuple(self.entries())
        tip = entries[-1]
        period_spent = self._recently(tip, self._keeper)
        return Summary(
            agent=self._keeper,
            limits=tip.limits,
            spent=tip.spent,
            remaining=max(0, tip.lifetime - tip.spent),
            period_spent=period_spent,
            period_remaining=None if tip.per_period is None else max(0, tip.per_period - period_spent),
            lines=len(entries),
            charges=sum(entry.kind == "charged" for entry in entries),
            limit_changes=tuple(entry for entry in entries if entry.kind in ("opened", "lowered", "raised")),
        )

    def verify(self, *, kept: Receipt | None = None) -> int:
        """Check every line's place, checksum and total, and that a receipt `kept` elsewhere is still in the file.

        Parameters
        ----------
        kept:
            A receipt that was kept elsewhere.

        Returns
        -------
        int
            The number of lines.

        Raises
        ------
        LedgerError
            At the first thing that does not fit.
        """
        with reopen(self._real, clock=self._clock, timeout_seconds=self._timeout) as read_again:
            digests = [entry.digest for entry in read_again.entries()]
        if kept is not None and digests[kept.number - 1 : kept.number] != [kept.digest]:
            raise LedgerError(
                f"{self.path}: charge {kept.number} of the receipt is missing, as in an older copy; "
                f"{self._advice.damaged}."
            )
        return len(digests)

    # --- limits ---

    def _recently(self, tip: Entry, owner: str) -> int:
        """Units of an owner in the period that ends now.

        Times are whole seconds, so what seems to be a period old may be younger: it still counts.
        """
        now, account = Now(**_read(self._clock)), self._accounts.get(owner, [(0, 0)])
        first = bisect_left(account, tip.age + _elapsed(tip, now) - tip.period_seconds, key=lambda charge: charge[0])
        return account[-1][1] - (account[first - 1][1] if first else 0)

    def _standing(self, tip: Entry, owner: str) -> dict[LimitName, tuple[int, int]]:
        """Units that an owner has spent and has left under each limit; the lifetime first: no waiting helps there."""
        spent = self._accounts.get(owner, [(0, 0)])[-1][1]
        standing: dict[LimitName, tuple[int, int]] = {"lifetime": (spent, max(0, tip.lifetime - spent))}
        if tip.per_period is not None:
            recently = self._recently(tip, owner)
            standing["period"] = recently, max(0, tip.per_period - recently)
        return standing

    # --- the file ---

    @contextmanager
    def _locked(self) -> Iterator[Entry]:
        """Be the only process that touches the file, and know its last line."""
        if self._file.closed:
            raise LedgerError(f"{self.path}: the ledger is closed; {self._advice.failed}.")
        # Threads share the lock of an open file, and so does the child of a fork.
        if self._home != (os.getpid(), threading.get_ident()):
            raise LedgerError(f"{self.path}: opened in another process or thread; open it again in this one.")
        with _in_words(self.path, self._advice):
            _lock(self._file.fileno(), self._timeout)
            try:
                self._catch_up()
                yield self._entries[-1]
            finally:
                if not self._file.closed:
                    _flock(self._file.fileno(), _RELEASE)

    def _refuse_others(self) -> None:
        start = self._file.read(64)
        if start.startswith(HEADING):
            return
        if not start:
            reason = f"the file is empty, expected a ledger; {self._advice.damaged}"
        elif start.startswith(_SQLITE):
            reason = (
                "found an SQLite file, as ledgers of palmatch 0.2 were; what it has counted stays spent: keep it, "
                "and make a new ledger whose lifetime is what the old one had left"
            )
        elif start.startswith(HEADING[:-2]):
            reason = "found a ledger of a later version; update palmatch"
        else:
            reason = "found another program's file, expected a ledger; give the ledger's path"
        raise LedgerError(f"{self.path}: {reason}.")

    def _check_file(self) -> None:
        """Make sure that this is still the file and the history that were opened."""
        self._file.seek(self._end - len(self._last))
        same = os.path.samestat(os.fstat(self._file.fileno()), self._real.stat())
        if not same or self._file.read(len(self._last)) != self._last:
            raise LedgerError(f"{self.path}: the file was replaced while it was open; {self._advice.damaged}.")

    def _catch_up(self) -> None:
        """Read what other processes have added since."""
        self._check_file()
        lines, newline, _ = self._file.read().rpartition(b"\n")
        if newline:
            if self._file.writable():
                # Its writer may have died before it was on the disk, and what is acted upon must be there.
                _sync(self._file.fileno())
            for line in lines.split(b"\n"):
                self._remember(line + b"\n")
        if not self._entries:
            raise LedgerError(f"{self.path}: found no entries, expected at least one; {self._advice.damaged}.")

    def _remember(self, line: bytes) -> Entry:
        previous = self._entries[-1] if self._entries else _BEFORE
        digest, _, text = line[:-1].partition(b" ")
        if digest != _digest(previous.digest, text).encode():
            raise LedgerError(
                f"{self.path}: entry {previous.number + 1} does not follow the last; {self._advice.damaged}."
            )
        entry = _following(previous, text)
        if not self._entries:
            self._keeper = entry.agent
        self._entries.append(entry)
        self._kept.update(entry.kept)
        if entry.units:
            account = self._accounts.setdefault(entry.agent, [])
            account.append((entry.age, (account[-1][1] if account else 0) + entry.units))
        self._end, self._last = self._end + len(line), line
        return self._entries[-1]

    def _append(self, **facts: Any) -> Entry:
        """Write a line and return once it is on the disk; only while the file is locked."""
        return self._append_lines([facts])

    def _append_lines(self, every: Sequence[Mapping[str, Any]]) -> Entry:
        """Write lines at once and return when they are on the disk; of a crash the first ones may be left."""
        previous, lines, number = self._entries[-1], [], self._file.fileno()
        common = {"agent": self._keeper, "kind": "kept", **_read(self._clock)}
        for facts in every:
            lines.append(_line(previous, {**common, **facts}))
            previous = _following(previous, lines[-1][:-1].partition(b" ")[2])
        try:
            if os.fstat(number).st_size > self._end:
                # A line that was cut off by a crash: nothing may be appended to it.
                os.ftruncate(number, self._end)
                _sync(number)
            self._file.seek(self._end)
            if self._file.write(b"".join(lines)) != sum(map(len, lines)):
                raise OSError(_FULL)
            _sync(number)
        except OSError:
            # What may not be on the disk must not look to others as if it were.
            with suppress(OSError):
                os.ftruncate(number, self._end)
            self.close()
            raise
        for line in lines:
            self._remember(line)
        self._check_file()
        return self._entries[-1]


class Charge(NamedTuple):
    """What a store is to write of one owner: units, what is remembered, and what it has to be remembered until then."""

    owner: str
    units: int
    keep: Mapping[str, str]
    expected: Mapping[str, str | None]


class Store(Ledger):
    """Budgets of many agents in one ledger, a line for each charge with its owner; limits hold for each owner.

    What is remembered under a name with an empty value is forgotten. A file of one agent is refused, and one of many
    where one is expected. `listen` is told every line once, in their order.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        limits: Limits,
        clock: Callable[[], Now] = device_clock,
        timeout_seconds: float = LOCK_SECONDS,
        listen: Callable[[Entry], object] | None = None,
    ) -> None:
        self._listen, self._limits = listen, limits
        super().__init__(path, agent="many agents", clock=clock, timeout_seconds=timeout_seconds, **asdict(limits))

    def remaining_of(self, owners: Sequence[str]) -> list[int]:
        """Units that could be charged now to each owner, under both limits."""
        with self._locked() as tip:
            return [min(left for _, left in self._standing(tip, owner).values()) for owner in owners]

    def kept_of(self, names: Sequence[str]) -> list[str | None]:
        """Give what is remembered under each name, or None."""
        with self._locked():
            return [self._kept.get(name) for name in names]

    def charge_all(self, charges: Sequence[Charge], *, purpose: str) -> list[bool]:
        """Write every charge that is within its owner's limits and finds what it expects; tell which are on the disk.

        What was not written must not be acted on.
        """
        names = [name for charge in charges for name in charge.keep]
        if len(set(names)) < len(names) or len({charge.owner for charge in charges}) < len(charges):
            raise InputError(f"{self.path}: expected one charge for each owner and name.")
        with self._locked() as tip:
            written = [
                all(self._kept.get(name) == value for name, value in charge.expected.items())
                and charge.units <= min(left for _, left in self._standing(tip, charge.owner).values())
                for charge in charges
            ]
            lines = [
                {
                    "agent": _text(charge.owner, "agent"),
                    "kind": "charged" if charge.units else "kept",
                    "matching": "session",
                    "purpose": purpose,
                    "units": _whole(charge.units, "units"),
                    "kept": _texts(charge.keep),
                }
                for charge, accepted in zip(charges, written, strict=True)
                if accepted
            ]
            if lines:
                self._append_lines(lines)
        return written

    def _standing(self, tip: Entry, owner: str) -> dict[LimitName, tuple[int, int]]:
        """As of the ledger, and under the limits of this opening, which another process may have raised since."""
        both = (tip.limits, self._limits)
        smaller = Limits(
            min(one.lifetime for one in both),
            min((one.per_period for one in both if one.per_period is not None), default=None),
            max(one.period_seconds for one in both),
        )
        return super()._standing(replace(tip, **asdict(smaller)), owner)

    def _remember(self, line: bytes) -> Entry:
        entry = super()._remember(line)
        # Of years of requests only totals and what is under way are kept in memory.
        del self._entries[:-1]
        for name in [name for name, value in entry.kept.items() if not value]:
            del self._kept[name]
        if self._listen is not None:
            self._listen(entry)
        return entry


def reopen(
    path: str | os.PathLike[str],
    *,
    acting: bool = False,
    clock: Callable[[], Now] = device_clock,
    timeout_seconds: float = LOCK_SECONDS,
) -> Ledger:
    """Open an existing ledger under the agent and the limits that it holds; to show it, unless `acting`."""
    if not Path(path).exists():
        raise LedgerError(f"{path}: found no file, expected a ledger; give the ledger's path.")
    ledger = object.__new__(Ledger)
    ledger._open(Path(path), clock, timeout_seconds, acting=acting)
    return ledger


def raise_limit(
    path: str | os.PathLike[str],
    *,
    lifetime: int,
    per_period: int | None,
    period_seconds: int = DAY,
    reason: str,
    clock: Callable[[], Now] = device_clock,
) -> None:
    """Put larger limits in force, with time and reason on record: a weaker guarantee, for past acts too.

    A program that goes on opening the ledger with the smaller limits lowers them again.
    """
    wanted = _limits(lifetime, per_period, period_seconds)
    _text(reason, "reason")
    with reopen(path, acting=True, clock=clock) as ledger, ledger._locked() as tip:
        if not _looser(tip.limits, wanted):
            raise InputError(f"{path}: {wanted} raises nothing; open the ledger with it instead.")
        ledger._append(kind="raised", purpose=reason, **asdict(wanted))


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


def _limits(lifetime: int, per_period: int | None, period_seconds: int) -> Limits:
    period = None if per_period is None else _whole(per_period, "per_period")
    return Limits(_whole(lifetime, "lifetime"), period, _whole(period_seconds, "period_seconds", least=1))


def _text(value: str, name: str) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise InputError(f"Expected {name} to be a printable text, got {name}={value!r}.")
    return value


def _texts(values: Mapping[str, str] | None) -> dict[str, str]:
    return {_text(name, "name"): value for name, value in (values or {}).items()}


# --- the disk ------------------------------------------------------------------------------------------------------


class _Advice(NamedTuple):
    damaged: str
    failed: str


_AGENT = _Advice("keep the file, treat its whole budget as spent and do not act", "no receipt was given, so do not act")
_READER = _Advice("keep the file; its agent has to treat the whole budget as spent", "nothing was charged")
_FULL = "the disk is full"


@contextmanager
def _in_words(path: Path, advice: _Advice) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reasons = {
            TimeoutError: "another process kept the ledger locked; try again when it has finished",
            PermissionError: "the file or its folder is read-only; make both writable",
            IsADirectoryError: "the file cannot be opened: found a folder; give the path of a file",
        }
        reason = reasons.get(type(error), error.strerror or str(error))
        raise LedgerError(f"{path}: {reason}; {advice.failed}.") from error


def _make(path: Path, content: bytes) -> None:
    """Make a ledger under another name and link it: a file under its own name is whole, or it is damaged."""
    number, name = tempfile.mkstemp(prefix=f"{path.name}-new-", dir=path.parent)
    try:
        with os.fdopen(number, "wb", buffering=0) as file:
            file.write(content)
            _sync(file.fileno())
        with suppress(FileExistsError):  # another process was faster, and both open its file
            os.link(name, path)
    finally:
        Path(name).unlink()
    if hasattr(os, "O_DIRECTORY"):
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _sync(folder)
        finally:
            os.close(folder)


def _sync(number: int) -> None:
    """Wait until the disk has a file."""
    if sys.platform == "darwin":
        fcntl.fcntl(number, fcntl.F_FULLFSYNC)  # fsync alone leaves it in the drive's own cache
    else:
        os.fsync(number)


def _lock(number: int, timeout_seconds: float) -> None:
    until = time.monotonic() + timeout_seconds
    while True:
        try:
            return _flock(number, _TAKE)
        except (BlockingIOError, PermissionError):
            if time.monotonic() > until:
                raise TimeoutError from None
        time.sleep(_PAUSE_SECONDS)


if sys.platform == "win32":
    _TAKE, _RELEASE = msvcrt.LK_NBLCK, msvcrt.LK_UNLCK

    def _flock(number: int, operation: int) -> None:
        os.lseek(number, 1 << 30, os.SEEK_SET)  # far beyond the end, since no process could read a locked byte
        msvcrt.locking(number, operation, 1)

else:
    _TAKE, _RELEASE = fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_UN
    _flock = fcntl.flock
