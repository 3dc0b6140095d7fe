"""The options that several subcommands share, and how the texts of options become values.

An option that is a text here, such as a list with commas, is read when the command runs, so that a mistake is one
sentence.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

import typer

from palmatch.errors import InputError

Time = TypeVar("Time", date, datetime)

# Whole numbers of at least 0, or of at least 1.
Natural: TypeAlias = Annotated[int, typer.Option(min=0)]
Positive: TypeAlias = Annotated[int, typer.Option(min=1)]
MaybeNatural: TypeAlias = Annotated[int | None, typer.Option(min=0)]
MaybePositive: TypeAlias = Annotated[int | None, typer.Option(min=1)]
Files: TypeAlias = Annotated[list[Path] | None, typer.Option(metavar="FILE")]
Names: TypeAlias = Annotated[list[str] | None, typer.Option(metavar="NAME")]
Origin: TypeAlias = Annotated[str | None, typer.Option(show_default="41,-74")]


class Shared:
    """Options that several commands have, with one meaning.

    Attributes
    ----------
    agents:
        The agents: CSV or Parquet with id, lat, lon (papers: id, primary and 0/1 areas); - for the input.
    resources:
        The resources, in the same form or as a feed; none with --pairs.
    edge:
        Edge of the square regions, in metres.
    areas:
        Most areas of a possible reviewer, with commas.
    spacing:
        Metres between the possible agents of a region.
    origin:
        LAT,LON from which squares are counted; keep it from one matching to the next.
    epsilon:
        ε of every agent whose file row has none.
    delta:
        δ of (ε, δ), where a method needs one.
    seed:
        Repeats the agents' draws: a simulation. Otherwise they are secret and kept nowhere.
    data_seed:
        Which synthetic data, where no files are given; public, and not the agents' draws.
    runs:
        Runs of each method.
    trips:
        Taxi trips with coordinates (CSV, .csv.gz, Parquet).
    json:
        Write the figures as JSON; - for the output.
    explain:
        Print what the guarantee assumes, and what it does not cover.
    help_all:
        Show all options and exit.
    quiet:
        Print nothing but errors, and what goes to -.
    """

    PANEL = "Common"


def without(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator for a command that does not offer some of its records' options."""

    def mark(command: Callable[..., None]) -> Callable[..., None]:
        command.without = names  # type: ignore[attr-defined]
        return command

    return mark


def read_docstring(documented: Any) -> tuple[str, dict[str, str], str]:
    """Return what a docstring begins with, what it says of parameters, attributes and results, and its examples."""
    begins, *sections = re.split(r"^(\w+)\n-+\n", inspect.cleandoc(documented.__doc__ or ""), flags=re.MULTILINE)
    named = dict(zip(sections[::2], sections[1::2], strict=True))
    listed = "\n".join(named.get(section, "") for section in ("Parameters", "Attributes", "Notes"))
    entries = re.findall(r"^(\w+):\n((?: {4}.*\n?)+)", listed, flags=re.MULTILINE)
    words = {name: " ".join(text.split()) for name, text in entries}
    return begins.strip(), words, named.get("Examples", "").strip()


def numbers(text: str, option: str) -> list[float]:
    """Return the numbers of a list with commas."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"Expected numbers with commas between them, got {option}={text!r}.") from None


def whole_numbers(text: str, option: str) -> list[int]:
    """Return the whole numbers of a list with commas."""
    values = numbers(text, option)
    if not all(value.is_integer() for value in values):
        raise InputError(f"Expected whole numbers with commas between them, got {option}={text!r}.")
    return [int(value) for value in values]


def time_of(kind: type[Time], text: str, option: str, example: str) -> Time:
    """Return the day or the moment that an option names in ISO form."""
    try:
        return kind.fromisoformat(text.strip())
    except ValueError:
        raise InputError(f"Expected {example}, got {option} {text!r}.") from None


def moment(text: str) -> datetime:
    """Return the time that --at gives."""
    return time_of(datetime, text, "--at", 'a time such as "2016-01-15 08:00:00"')


def score_range(text: str) -> tuple[float, float]:
    """Return the bounds that --score-range names."""
    values = numbers(text, "--score-range")
    if len(values) != 2:
        raise InputError(f"Expected the smallest and the largest score as LOW,HIGH, got --score-range={text!r}.")
    if not values[0] <= 0 <= values[1] or not 0 < values[1] - values[0] < math.inf:
        raise InputError(
            "Expected finite LOW,HIGH around 0, which is the score of a pair without a row, and LOW below HIGH, got "
            f"--score-range={text!r}."
        )
    return values[0], values[1]


def place(text: str) -> tuple[float, float]:
    """Return the place that --origin names."""
    values = numbers(text, "--origin")
    if len(values) != 2 or not (abs(values[0]) <= 90 and abs(values[1]) <= 180):
        raise InputError(
            f"Expected a latitude from -90 to 90 and a longitude from -180 to 180 as LAT,LON, got --origin={text!r}."
        )
    return values[0], values[1]
