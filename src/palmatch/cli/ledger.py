"""palmatch ledger: what an agent's budget was spent on, and whether its file can be relied on; nothing is charged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Decimal
from itertools import islice
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from palmatch.cli import options, show
from palmatch.cli.options import option
from palmatch.cli.show import check_outputs
from palmatch.device.ledger import Entry, Summary, epsilon_of, reopen
from palmatch.errors import InputError

NAME = "ledger"
HELP = "Look into an agent's budget ledger: what is spent, what remains."
SHOW_HELP = "Show whose ledger a file is, what is spent and what remains, by matching."
VERIFY_HELP = (
    "Check every row of a ledger: its checksum, its place and the total. This finds accidents, not forgers, "
    "and cannot tell an older copy that was put back."
)
EXAMPLES = (
    "Example: palmatch ledger show alice.ledger\n\n"
    "Example: palmatch ledger show alice.ledger --all --json alice.json\n\n"
    "Example: palmatch ledger verify alice.ledger"
)

# As many matchings as fit on a screen together with the rest.
_MATCHINGS = 20

File: TypeAlias = Annotated[Path, typer.Argument(help="The ledger, as the agent keeps it.", show_default=False)]

app = typer.Typer(
    name=NAME,
    help=HELP,
    epilog="Example: palmatch ledger show alice.ledger",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
)


@dataclass(frozen=True, slots=True)
class MatchingLine:
    """What one matching took: units, in how many charges, the last of them at `last` seconds since 1970."""

    matching: str
    charges: int
    units: int
    last: int


@app.command("show", help=SHOW_HELP, epilog=EXAMPLES)
def show_ledger(
    file: File,
    everything: Annotated[bool, option("--all", f"All matchings, not only the {_MATCHINGS} newest.")] = False,
    json: options.Json = None,
) -> None:
    """Show a ledger."""
    _check(file, json)
    with reopen(file) as ledger:
        summary = ledger.summary()
        # Others may go on charging: the lines are about the same rows as the summary.
        lines = by_matching(islice(ledger.entries(), summary.lines))
    if show.write_json(json, _figures(file, summary, lines)):
        _print_summary(summary, lines, most=len(lines) if everything else _MATCHINGS)


@app.command("verify", help=VERIFY_HELP, epilog=EXAMPLES)
def verify_ledger(file: File, json: options.Json = None) -> None:
    """Check a ledger."""
    _check(file, json)
    with reopen(file) as ledger:
        rows = ledger.verify()
    if show.write_json(json, {"file": str(file), "rows": rows}):
        show.say(f"{file}: checked {show.counted(rows, 'row')}, every checksum and total fits.")


def by_matching(entries: Iterable[Entry]) -> list[MatchingLine]:
    """Add up the charges of each matching; the one that was charged last comes first."""
    lines: dict[str, MatchingLine] = {}
    for entry in entries:
        if entry.kind == "charged":
            # Taken out and put back at the end: so the order is that of the last charges, not of the first.
            line = lines.pop(entry.matching, MatchingLine(entry.matching, 0, 0, 0))
            lines[entry.matching] = MatchingLine(
                entry.matching, line.charges + 1, line.units + entry.units, last=entry.time
            )
    return list(reversed(lines.values()))


def _check(file: Path, json: Path | None) -> None:
    if file.is_dir():
        raise InputError(f"{file}: found a directory, expected a ledger; give the ledger's path.")
    # A ledger that is overwritten gives its whole budget back.
    if json is not None and file.exists() and json.exists() and json.samefile(file):
        raise InputError(f"Expected another file than the ledger itself, got --json {json}; choose another name.")
    check_outputs(json=json)


def _print_summary(summary: Summary, lines: Sequence[MatchingLine], *, most: int) -> None:
    show.say(f"Ledger of {summary.agent}; every ε is rounded up, times are UTC")
    limits = summary.limits
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
        show.say(f"  {_moment(change.time)} {change.kind}, {_limits(change)}{reason}", indent="    ")


def _standing(spent: int, remaining: int | None, limit: int | None) -> str:
    if remaining is None or limit is None:
        return f"ε {_epsilon(spent)} spent, no limit of its own"
    return f"ε {_epsilon(spent)} spent, {_epsilon(remaining)} of {_epsilon(limit)} remaining"


def _limits(change: Entry) -> str:
    if change.per_period is None:
        return f"lifetime ε {_epsilon(change.lifetime)}, no limit per period"
    return f"lifetime ε {_epsilon(change.lifetime)}, {_epsilon(change.per_period)} in {_length(change.period_seconds)}"


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


def _figures(file: Path, summary: Summary, lines: Sequence[MatchingLine]) -> dict[str, object]:
    limits = summary.limits
    return {
        "file": str(file),
        "agent": summary.agent,
        "lifetime": _amounts(summary.spent, summary.remaining, limits.lifetime),
        "period": {
            "seconds": limits.period_seconds,
            **_amounts(summary.period_spent, summary.period_remaining, limits.per_period),
        },
        "charges": summary.charges,
        "matchings": [asdict(line) | {"epsilon": epsilon_of(line.units)} for line in lines],
        "limit_changes": [_change(entry) for entry in summary.limit_changes],
    }


def _amounts(spent: int, remaining: int | None, limit: int | None) -> dict[str, object]:
    """Return amounts in ε, rounded up, and in the ledger's own units, which are exact."""
    units = {"spent": spent, "remaining": remaining, "limit": limit}
    amounts = {name: None if value is None else epsilon_of(value) for name, value in units.items()}
    return {**amounts, **{f"{name}_units": value for name, value in units.items()}}


def _change(entry: Entry) -> dict[str, object]:
    return {
        "time": entry.time,
        "kind": entry.kind,
        "reason": entry.purpose,
        "lifetime": epsilon_of(entry.lifetime),
        "per_period": None if entry.per_period is None else epsilon_of(entry.per_period),
        "period_seconds": entry.period_seconds,
    }
