"""The options that several words share, each written once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

import typer

from palmatch.domains import mobility
from palmatch.errors import InputError
from palmatch.methods import METHODS

Size = TypeVar("Size", int, float)

ORIGIN = "{:g},{:g}".format(*mobility.ORIGIN)


class DomainName(StrEnum):
    """What the files hold."""

    mobility = "mobility"
    papers = "papers"
    table = "table"


class Accountants(StrEnum):
    """Accountants whose promise holds."""

    auto = "auto"
    renyi = "renyi"
    pure = "pure"
    exact = "exact"


Agents: TypeAlias = Annotated[
    Path, typer.Argument(help="Who wants something: CSV or Parquet with id, lat, lon (papers: id and 0/1 areas).")
]
Resources: TypeAlias = Annotated[Path, typer.Argument(help="What there is to have, in the same form.")]
Domain: TypeAlias = Annotated[DomainName, typer.Option("--domain", help="What the files hold.")]
Edge: TypeAlias = Annotated[float, typer.Option("--edge", help="Edge of the square regions, in metres (mobility).")]
Edges: TypeAlias = Annotated[
    str, typer.Option("--edge", help="Edges of the square regions in metres, with commas (mobility).")
]
Areas: TypeAlias = Annotated[
    int, typer.Option("--areas", help="Most areas, the primary one included, of a possible reviewer (papers).")
]
AreasList: TypeAlias = Annotated[
    str, typer.Option("--areas", help="Most areas of a possible reviewer, with commas (papers).")
]
DrawPrimary: TypeAlias = Annotated[
    bool,
    typer.Option("--draw-primary", help="Draw primary areas that the files lack; adds ln k to ε (papers)."),
]
Types: TypeAlias = Annotated[
    Path | None, typer.Option("--types", help="What everybody who could be in a region might want (table).")
]
Interest: TypeAlias = Annotated[
    int | None, typer.Option("--interest", help="How many resources each agent cares for; all of them unless given.")
]
Alpha: TypeAlias = Annotated[
    float, typer.Option("--alpha", help="Metres over which a resource loses 63 % of its worth (mobility).")
]
Spacing: TypeAlias = Annotated[
    float, typer.Option("--spacing", help="Metres between the possible agents of a region (mobility).")
]
Origin: TypeAlias = Annotated[
    str, typer.Option("--origin", help="LAT,LON from which squares are counted; keep it from one matching to the next.")
]
Epsilon: TypeAlias = Annotated[float, typer.Option("--epsilon", help="Budget of everybody who brings none.")]
AccountantName: TypeAlias = Annotated[
    Accountants, typer.Option("--accountant", help="Who adds up what `palma` spends; auto takes what buys the most.")
]
Delta: TypeAlias = Annotated[float, typer.Option("--delta", help="Failure probability.")]
SecretSeed: TypeAlias = Annotated[
    int | None,
    typer.Option("--seed", help="Repeats a matching, for tests; otherwise chance is secret and kept nowhere.", min=0),
]
Seed: TypeAlias = Annotated[int, typer.Option("--seed", help="The same seed gives the same output.", min=0)]
Runs: TypeAlias = Annotated[int, typer.Option("--runs", help="Runs of each method.")]
Json: TypeAlias = Annotated[Path | None, typer.Option("--json", help="Write the figures as JSON; - for the output.")]


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


def different(values: list[Size], option: str, text: str) -> list[Size]:
    """Refuse a list that says something twice."""
    if len(set(values)) < len(values):
        raise InputError(f"Expected different numbers with commas between them, got {option}={text!r}.")
    return values


def place(text: str) -> tuple[float, float]:
    """Return the place that --origin names."""
    values = numbers(text, "--origin")
    if len(values) != 2 or not (abs(values[0]) <= 90 and abs(values[1]) <= 180):
        raise InputError(
            f"Expected a latitude from -90 to 90 and a longitude from -180 to 180 as LAT,LON, got --origin={text!r}."
        )
    return values[0], values[1]


def methods_option(default: str) -> Any:
    """Return the option for methods to be compared; the default is shown with spaces, so that it can be folded."""
    return typer.Option(
        "--methods",
        help="Methods with commas between them, or all (see match --help).",
        show_default=default.replace(",", ", "),
    )


def method(text: str) -> str:
    """Return the one method that --policy names."""
    if text not in METHODS:
        raise InputError(f"There is no method {text!r}: choose one of {', '.join(METHODS)}.")
    return text


def methods(text: str) -> list[str]:
    """Return the methods of a list with commas; `all` for every one."""
    names = list(METHODS) if text.strip() == "all" else [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in METHODS]
    if unknown or not names:
        what = repr(unknown[0]) if unknown else "of no name"
        raise InputError(f"There is no method {what}: choose from {', '.join(METHODS)}.")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"Expected each method once, got {twice!r} twice in --methods={text!r}.")
    return names
