"""The options that several subcommands share, each written once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime
from enum import StrEnum
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar, get_type_hints

import typer

from palmatch.domains import mobility
from palmatch.domains.plugin import BUILT_IN, plugin_domains
from palmatch.errors import InputError
from palmatch.methods import METHODS, Settings
from palmatch.palma.accountant import ACCOUNTANTS
from palmatch.report.phrases import counted

Size = TypeVar("Size", int, float)

ORIGIN = "{:g},{:g}".format(*mobility.ORIGIN)


# Accountants whose guarantee holds, as choices of an option.
Accountants = StrEnum("Accountants", list(ACCOUNTANTS))  # type: ignore[misc]  # known when it is run
AUTO = Accountants("auto")

# Under which heading an option stands in the help.
COMMON, MOBILITY, PAPERS, TABLE = "Common", "Mobility", "Papers", "Table"
SCORES = "Scores (--domain table)"


def option(name: str, words: str, panel: str | None = None, **more: Any) -> Any:
    """Return an option: its name, its line of help, and under which heading that stands."""
    return typer.Option(name, help=words, rich_help_panel=panel, **more)


Agents: TypeAlias = Annotated[
    Path,
    typer.Argument(
        help="The agents: CSV or Parquet with id, lat, lon (papers: id, primary and 0/1 areas); - for the input."
    ),
]
Resources: TypeAlias = Annotated[
    Path | None, typer.Argument(help="The resources, in the same form; none with --pairs.")
]
Pairs: TypeAlias = Annotated[
    bool,
    option(
        "--pairs",
        "Match agents with each other: lat, lon, to_lat, to_lon (shared rides); a column each (table).",
        COMMON,
    ),
]
Domain: TypeAlias = Annotated[
    str,
    option(
        "--domain",
        "What the files hold: mobility, papers, table, an installed domain, or your own as module:Class.",
        COMMON,
        metavar="NAME",
        autocompletion=lambda: [*BUILT_IN, *plugin_domains()],
    ),
]
DomainSettings: TypeAlias = Annotated[
    list[str] | None, option("--set", "A setting of your own domain; repeat it.", COMMON, metavar="NAME=VALUE")
]
Edge: TypeAlias = Annotated[float, option("--edge", "Edge of the square regions, in metres.", MOBILITY)]
Edges: TypeAlias = Annotated[str, option("--edge", "Edges of the square regions in metres, with commas.", MOBILITY)]
Areas: TypeAlias = Annotated[
    int, option("--areas", "Most areas, the primary one included, of a possible reviewer.", PAPERS)
]
AreasList: TypeAlias = Annotated[str, option("--areas", "Most areas of a possible reviewer, with commas.", PAPERS)]
DrawPrimary: TypeAlias = Annotated[
    bool, option("--draw-primary", "Draw primary areas that the files lack; adds ln k to ε.", PAPERS)
]
Types: TypeAlias = Annotated[
    Path | None,
    option("--types", "The possible types of each region: region and a utility for each resource.", TABLE),
]
Regions: TypeAlias = Annotated[
    Path | None, option("--regions", "The public region of each reviewer, for scores: user, region.", SCORES)
]
MoreScores: TypeAlias = Annotated[
    list[Path] | None, option("--scores", "Another file of scores, to be added; can be repeated.", SCORES)
]
Weights: TypeAlias = Annotated[str | None, option("--weights", "Weights of all files of scores, with commas.", SCORES)]
MaxPapers: TypeAlias = Annotated[
    Path | None, option("--max-papers", "Most papers of each reviewer: user, max_papers.", SCORES)
]
ScoreRange: TypeAlias = Annotated[
    str, option("--score-range", "The smallest and largest score that there may be.", SCORES)
]
Interest: TypeAlias = Annotated[
    int | None,
    option(
        "--interest",
        "How many resources each possible type considers; all unless given. With it fewer units may be filled than the "
        "optimum fills.",
        COMMON,
    ),
]
Capacity: TypeAlias = Annotated[
    int | None,
    option(
        "--capacity", "Agents that a resource takes where its file lacks `capacity`; 1 unless given.", COMMON, min=0
    ),
]
Demand: TypeAlias = Annotated[
    int | None,
    option("--demand", "Resources that an agent wants where its file lacks `demand`; 1 unless given.", COMMON, min=0),
]
Likely: TypeAlias = Annotated[
    Path | None,
    option(
        "--likely",
        "Public places near which agents are likely to be, such as stations, in the form of the resources; those of "
        "the resources unless given. Places in this file are taken as public: no guarantee covers them.",
        COMMON,
    ),
]
Conflicts: TypeAlias = Annotated[
    Path | None,
    option(
        "--conflicts",
        "Pairs never to be matched: agent, resource; or constraints `paper,user,-1|0|1`, 1 for a pair that is matched "
        "beforehand.",
        COMMON,
    ),
]
Alpha: TypeAlias = Annotated[
    float, option("--alpha", "Metres over which a resource loses 63 % of its worth.", MOBILITY)
]
Spacing: TypeAlias = Annotated[float, option("--spacing", "Metres between the possible agents of a region.", MOBILITY)]
UsualSpacing: TypeAlias = Annotated[
    float | None,
    option(
        "--spacing",
        "Metres between the possible agents of a region; 100 unless given, half of the edge for pairs of agents.",
        MOBILITY,
    ),
]
Origin: TypeAlias = Annotated[
    str,
    option("--origin", "LAT,LON from which squares are counted; keep it from one matching to the next.", MOBILITY),
]
Epsilon: TypeAlias = Annotated[float, option("--epsilon", "ε of every agent whose file row has none.", COMMON)]
Epsilons: TypeAlias = Annotated[
    str, option("--epsilon", "ε of every agent whose file row has none; several with commas between them.", COMMON)
]
AccountantName: TypeAlias = Annotated[
    Accountants,
    option("--accountant", "What adds up the cost of `palma`; auto takes what buys the most.", COMMON),
]
Delta: TypeAlias = Annotated[float, option("--delta", "δ of (ε, δ), where a method needs one.", COMMON)]
SecretSeed: TypeAlias = Annotated[
    int | None,
    option(
        "--seed",
        "Repeats the agents' draws: a simulation. Otherwise they are secret and kept nowhere.",
        COMMON,
        min=0,
    ),
]
DataSeed: TypeAlias = Annotated[
    int,
    option(
        "--data-seed",
        "Which synthetic data, where no files are given; public, and not the agents' draws.",
        COMMON,
        min=0,
    ),
]
Runs: TypeAlias = Annotated[int, option("--runs", "Runs of each method.", COMMON)]
Trips: TypeAlias = Annotated[
    Path | None, typer.Option("--trips", help="Taxi trips with coordinates (CSV, .csv.gz, Parquet).")
]
Json: TypeAlias = Annotated[Path | None, option("--json", "Write the figures as JSON; - for the output.", COMMON)]


def one_method(choices: str) -> Any:
    """Return the option for one method; --policy is its name of before, for one more release."""
    return typer.Option(
        "--method",
        "--policy",
        help=f"One of {choices}. (--policy is its old name.)",
        autocompletion=lambda: list(METHODS),
        rich_help_panel=COMMON,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemOptions:
    """How two files become a problem: the options that all commands on files share, one by one for the user."""

    domain: Domain = "mobility"
    pairs: Pairs = False
    set: DomainSettings = None
    draw_primary: DrawPrimary = False
    types: Types = None
    regions: Regions = None
    scores: MoreScores = None
    weights: Weights = None
    max_papers: MaxPapers = None
    score_range: ScoreRange = "0,1"
    interest: Interest = None
    capacity: Capacity = None
    demand: Demand = None
    conflicts: Conflicts = None
    likely: Likely = None
    alpha: Alpha = 4000.0
    spacing: UsualSpacing = None
    origin: Origin = ORIGIN

    @property
    def files(self) -> list[Path | None]:
        """Every file that the options name."""
        return [self.types, self.conflicts, self.likely, self.regions, self.max_papers, *(self.scores or [])]

    def size(self, edge: Size, areas: Size) -> Size:
        """Return what the size of a region means in this domain: the edge of squares, or the number of areas."""
        return areas if self.domain == "papers" else edge

    def sizes(self, edges: str, areas: str) -> Sequence[float]:
        """Return the sizes that were asked for, with commas between them; one that means nothing for other domains."""
        if self.domain == "mobility":
            return different(numbers(edges, "--edge"), "--edge", edges)
        if self.domain == "papers":
            return different(whole_numbers(areas, "--areas"), "--areas", areas)
        return [0]

    def title(self, size: float) -> str:
        """Return a size of regions in a word or two."""
        if self.domain == "papers":
            return counted(int(size), "area")
        return f"{size:g} m" if self.domain == "mobility" else self.domain.rpartition(":")[2]

    def named_size(self, size: float) -> dict[str, Any]:
        """Return the fields `edge` and `areas` of a row of results; None where one does not apply."""
        return {
            "edge": size if self.domain == "mobility" else None,
            "areas": int(size) if self.domain == "papers" else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetOptions:
    """What agents may spend, what adds it up, and whether their draws can be repeated."""

    epsilon: Epsilon = 1.0
    delta: Delta = 1e-5
    accountant: AccountantName = AUTO
    seed: SecretSeed = None

    @property
    def settings(self) -> Settings:
        """The public numbers that follow."""
        return Settings(epsilon=self.epsilon, delta=self.delta, accountant=self.accountant.value)


def sharing(command: Callable[..., None], *, without: Sequence[str] = ()) -> Callable[..., None]:
    """Return a command whose parameter of a record of options is one option for each of the record's fields.

    Fields named in `without` are not offered and keep their defaults.
    """
    parameters: list[Parameter] = []
    records: dict[str, Any] = {}
    for parameter in signature(command, eval_str=True).parameters.values():
        if is_dataclass(parameter.annotation):
            records[parameter.name] = record = parameter.annotation
            hints = get_type_hints(record, include_extras=True)
            parameters += [
                Parameter(own.name, Parameter.KEYWORD_ONLY, default=own.default, annotation=hints[own.name])
                for own in fields(record)
                if own.name not in without
            ]
        else:
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))

    def shared(**given: Any) -> None:
        chosen = {
            name: record(**{own.name: given.pop(own.name) for own in fields(record) if own.name in given})
            for name, record in records.items()
        }
        command(**given, **chosen)

    shared.__doc__ = command.__doc__
    shared.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    shared.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return shared


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


def moment(text: str) -> datetime:
    """Return the time that --at gives."""
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        raise InputError(f'Expected a time such as "2016-01-15 08:00:00", got --at {text!r}.') from None


def day(text: str) -> date:
    """Return the day that --date gives."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InputError(f"Expected a day such as 2016-01-15, got --date {text!r}.") from None


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


def methods_option(default: str) -> Any:
    """Return the option for methods to be compared; the default is shown with spaces, so that it can be folded."""
    return typer.Option(
        "--methods",
        help="Methods with commas between them, or all (see match --help); limit adds what no private method can beat.",
        rich_help_panel=COMMON,
        show_default=default.replace(",", ", "),
    )


def method(text: str) -> str:
    """Return the one method that --method names."""
    METHODS.find(text)
    return text


def methods(text: str, *, beside: Sequence[str] = ()) -> list[str]:
    """Return the methods of a list with commas; `all` for every one. `beside` are further names that may be in it."""
    names = list(METHODS) if text.strip() == "all" else [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in METHODS and name not in beside]
    if unknown or not names:
        raise METHODS.unknown(unknown[0] if unknown else "", beside=beside)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"Expected each method once, got {twice!r} twice in --methods={text!r}.")
    return names
