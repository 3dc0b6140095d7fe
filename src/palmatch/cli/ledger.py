"""palmatch ledger: what an agent's budget was spent on, and whether its file can be relied on; nothing is charged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Decimal
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from palmatch.cli import show
from palmatch.device.ledger import Entry, Summary, epsilon_of, reopen
from palmatch.errors import InputError

HELP = "Look into an agent's budget ledger: what is spent, what remains."

# As many matchings as fit on a screen together with the rest.
_MATCHINGS = 20


@dataclass(frozen=True, slots=True)
class MatchingLine:
    """What one matching took: units, in how many charges, the last of them at `last` seconds since 1970."""

    matching: str
    charges: int
    units: int
    last: int


def show_ledger(
    file: Path, *, everything: Annotated[bool, typer.Option("--all")] = False, json: Path | None = None
) -> None:
    """Show whose ledger a file is, what is spent and what remains, by matching.

    Parameters
    ----------
    file:
        The ledger, as the agent keeps it.
    everything:
        All matchings, not only the 20 newest.

    Examples
    --------
    Example: palmatch ledger show alice.ledger

    Example: palmatch ledger show alice.ledger --all --json alice.json
    """
    _check(file, json)
    with reopen(file) as ledger:
        summary = ledger.summary()
        # Others may go on charging: the lines are about the same rows as the summary.
        lines = by_matching(islice(ledger.entries(), summary.lines))
    if show.write_json(json, _figures(file, summary, lines)):
        _print_summary(summary, lines, most=len(lines) if everything else _MATCHINGS)


def verify_ledger(file: Path, *, json: Path | None = None) -> None:
    """Check every row of a ledger: its checksum, its place and the total.

    This finds accidents, not forgers, and cannot tell an older copy that was put back.

    Parameters
    ----------
    file:
        The ledger, as the agent keeps it.

    Examples
    --------
    Example: palmatch ledger verify alice.ledger
    """
    _check(file, json)
    with reopen(file) as ledger:
        rows = ledger.verify()
    if show.write_json(json, {"file": str(file), "rows": rows}):
        show.say(f"{file}: checked {show.counted(rows, 'row')}, every checksum and total fits.")


SUBCOMMANDS = {"show": show_ledger, "verify": verify_ledger}


def by_matching(entries: Iterable[Entry]) -> list[MatchingLine]:
    """Add up the charges of each matching; the one that was charged last comes first."""
    lines: dict[str, MatchingLine] = {}
    for entry in entries:
        if entry.kind == "charged":
            # Taken out and put back at the end: so the order is that of the last charges, not of the first.
            line = lines.pop(entry.matching, MatchingLine(entry.matching, 0, 0, 0))
            units = line.units + entry.units
            lines[entry.matching] = MatchingLine(entry.matching, line.charges + 1, units, last=entry.time)
    return list(reversed(lines.values()))


def _check(file: Path, json: Path | None) -> None:
    if file.is_dir():
        raise InputError(f"{file}: found a directory, expected a ledger; give the ledger's path.")
    # A ledger that is overwritten gives its whole budget back.
    if json is not None and show.is_same(json, file):
        raise InputError(f"Expected another file than the ledger itself, got --json {json}; choose another name.")
    show.check_outputs(json=json)


def _print_summary(summary: Summary, lines: Sequence[MatchingLine], *, most: int) -> None:
    limits = summary.limits
    show.say(f"Ledger of {summary.agent}; every ε is rounded up, times are UTC")
    show.say(f"Lifetime:    {_standing(summary.spent, summary.remaining, limits.lifetime)}")
    show.say(f"In any {_length(limits.period_seconds)}:")
    show.say(f"             {_standing(summary.period_spent, summary.period_remaining, limits.per_period)}")
    if lines:
        # A long name is folded, not cut: cut names may look the same.
        rows = [(_printable(x.matching), f"{x.charges:,}", _epsilon(x.units), _moment(x.last)) for x in lines[:most]]
        show.show_table(("matching", "charges", "ε", "last charge"), rows)
    else:
        show.say("Nothing has been charged.")
    if len(lines) > most:
        show.say(f"The newest {most} of {len(lines):,} matchings; --all shows every one.")
    show.say("Limits:")
    for change in summary.limit_changes:
        reason = "" if change.kind == "opened" else f": {_printable(change.purpose)}"
        told = f"lifetime ε {_epsilon(change.lifetime)}, no limit per period"
        if change.per_period is not None:
            told = f"lifetime ε {_epsilon(change.lifetime)}, {_epsilon(change.per_period)} in "
            told += _length(change.period_seconds)
        show.say(f"  {_moment(change.time)} {change.kind}, {told}{reason}", indent="    ")


def _standing(spent: int, remaining: int | None, limit: int | None) -> str:
    if remaining is None or limit is None:
        return f"ε {_epsilon(spent)} spent, no limit of its own"
    return f"ε {_epsilon(spent)} spent, {_epsilon(remaining)} of {_epsilon(limit)} remaining"


def _epsilon(units: int) -> str:
    """Return units as ε with six digits, rounded up as `epsilon_of` does, never to the nearest."""
    return f"{Decimal(epsilon_of(units)).quantize(Decimal('0.000001'), rounding=ROUND_CEILING):,}"


def _length(seconds: int) -> str:
    units = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))
    name, unit = next((name, unit) for name, unit in units if seconds % unit == 0)
    return show.counted(seconds // unit, name)


def _moment(seconds: int) -> str:
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        # An agent may count on a clock of its own, beyond the calendar's year 9999.
        return f"second {seconds:,}"


def _printable(text: str) -> str:
    # A ledger written by another program may hold what would move a terminal's cursor.
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


def _figures(file: Path, summary: Summary, lines: Sequence[MatchingLine]) -> dict[str, Any]:
    limits = summary.limits
    period = _amounts(summary.period_spent, summary.period_remaining, limits.per_period)
    return {
        "file": str(file),
        "agent": summary.agent,
        "lifetime": _amounts(summary.spent, summary.remaining, limits.lifetime),
        "period": {"seconds": limits.period_seconds, **period},
        "charges": summary.charges,
        "matchings": [asdict(line) | {"epsilon": epsilon_of(line.units)} for line in lines],
        "limit_changes": [
            show.pick(change, "time kind period_seconds")
            | {"reason": change.purpose, "lifetime": epsilon_of(change.lifetime)}
            | {"per_period": None if change.per_period is None else epsilon_of(change.per_period)}
            for change in summary.limit_changes
        ],
    }


def _amounts(spent: int, remaining: int | None, limit: int | None) -> dict[str, Any]:
    """Return amounts in ε, rounded up, and in the ledger's own units, which are exact."""
    units = {"spent": spent, "remaining": remaining, "limit": limit}
    amounts = {name: None if value is None else epsilon_of(value) for name, value in units.items()}
    return {**amounts, **{f"{name}_units": value for name, value in units.items()}}
