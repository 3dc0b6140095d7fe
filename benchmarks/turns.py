"""Ways of taking turns, side by side: what they lose, and how their rounds grow with the number of agents.

    python -m benchmarks.turns                  the table of losses and rounds, about five minutes
    python -m benchmarks.turns --out DIR        the figure of rounds against agents (turns.png), about two minutes

Losses are on the synthetic city at 8:00, 13:00 and 19:00, 8 runs each, ε = 1: mean and standard deviation over these
windows, and the mean rounds. Rules were tuned on other seeds of the city. The figure is on synthetic crowds of one
density; the published rule is played by `noise`, its rounds at ε = 0, which spares the minutes of its accounting.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator

from palmatch.data import city
from palmatch.data.crowd import crowd
from palmatch.domains import mobility
from palmatch.methods import Settings, Workspace, prepare
from palmatch.methods import lists as turns
from palmatch.methods import reports as once
from palmatch.methods.centralised import optimal_welfare
from palmatch.report.style import DASHES, FAINT_INK, INK, MARGIN, canvas, legend_above, save, styled
from palmatch.rounds.auction import ValueLists
from palmatch.rounds.draws import streams
from palmatch.rounds.turns import Turns, best_first, constant, take_turns

EDGES = (1000, 2000, 3000, 4000)
WINDOWS = ((8.0, 1), (13.0, 2), (19.0, 3))
RUNS = 8

# The rules that were tried; those that earn their place have a method.
RULES: dict[str, Callable[[ValueLists], Turns]] = {
    "constant 0.15": turns.patient,
    "constant 0.05": lambda lists: constant(lists, 0.05),
    "constant 0.95": lambda lists: constant(lists, 0.95),
    "threshold 50": lambda lists: turns.threshold(lists, steps=50),
    "threshold 200": turns.threshold,
    "threshold 400": lambda lists: turns.threshold(lists, steps=400),
}
COMPARED = ("published", "noise", "once", "hungarian-once", "hungarian-region", "alma", "alma-threshold", "greedy")

# Method, its name in the figure, and the most agents that it is tried with: with all resources considered, and with 20.
DRAWN = (
    ("noise", "published rule", 3000, 100_000),
    ("alma", "alma, linear", 3000, 100_000),
    ("alma-patient", "alma-patient", 3000, 100_000),
    ("alma-threshold", "alma-threshold", 3000, 100_000),
    ("once", "once", 3000, 100_000),
)
COLOURS = ("#a3123a", "#d97706", "#2b9fd0", "#666b70", "#332288")
EVERYTHING, BOUNDED = (10, 30, 100, 300, 1000, 3000), (100, 1000, 10_000, 100_000)
GAMES = 7

Figures = dict[tuple[str, str], list[list[tuple[float, float]]]]


@dataclass(frozen=True, slots=True)
class Line:
    """The rounds of a method over sizes: one list of games for each size."""

    name: str
    agents: tuple[int, ...]
    rounds: tuple[tuple[int, ...], ...]


def outcomes(workspace: Workspace) -> Iterator[tuple[str, str, float, float]]:
    """Yield (what is acted on, rule, loss, rounds) of every game on one window."""
    problem, settings = workspace.problem, Settings()
    best = optimal_welfare(problem)
    for name in COMPARED:
        method = prepare(workspace, name, settings=settings)
        for seed in range(RUNS):
            matching = method.play(seed)
            yield "methods", name, 1 - matching.welfare / best, matching.rounds
    plan = once.reporting(workspace, settings)
    averages, own = (
        best_first(turns.region_value_lists(workspace)),
        turns.own_value_lists(problem, problem.domain, problem.types),
    )
    for seed in range(RUNS):
        reported = best_first(once.value_lists(plan, once.drawn(plan, workspace.randomness(seed))))
        for source, lists in (("own list", own), ("averages", averages), ("report", reported)):
            for rule, made in RULES.items():
                ended = take_turns(lists, made(lists), resources=problem.resources, names=streams(seed, workspace.keys))
                yield source, rule, 1 - problem.true_utility_of(ended.resource_of).sum() / best, ended.rounds


def losses() -> Figures:
    """Return for each way, edge and window its mean loss and rounds."""
    found: Figures = {}
    for column, edge in enumerate(EDGES):
        for hour, seed in WINDOWS:
            batch = city.batch(hour, seed=seed)
            workspace = Workspace(mobility.problem(batch.requests, batch.vehicles, edge=edge))
            games: dict[tuple[str, str], list[tuple[float, float]]] = {}
            for source, rule, loss, rounds in outcomes(workspace):
                games.setdefault((source, rule), []).append((loss, rounds))
            for way, played in games.items():
                loss, rounds = np.mean(played, axis=0)
                found.setdefault(way, [[] for _ in EDGES])[column].append((float(loss), float(rounds)))
            print(f"{hour:g}:00, {len(batch.requests)} agents, {edge} m", flush=True)
    return found


def as_table(found: Figures) -> str:
    """Return loss in per cent ± deviation over windows, and rounds."""
    rows = ["| acts on, rule | " + " | ".join(f"{edge} m" for edge in EDGES) + " |", "|---" * (1 + len(EDGES)) + "|"]
    for (source, rule), columns in found.items():
        cells = []
        for windows in columns:
            loss, rounds = np.array(windows).T
            cells.append(f"{100 * loss.mean():.1f}±{100 * loss.std(ddof=1):.1f} {rounds.mean():.0f}")
        rows.append(f"| {'' if source == 'methods' else source + ', '}{rule} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def growth(sizes: Sequence[int], interest: int | None) -> list[Line]:
    """Play every drawn method on crowds of growing size."""
    played: dict[str, dict[int, tuple[int, ...]]] = {name: {} for _, name, _, _ in DRAWN}
    for size in sizes:
        agents = crowd(size, seed=1)
        workspace = Workspace(mobility.problem(agents.requests, agents.vehicles, edge=1000, interest=interest))
        for method, name, *most in DRAWN:
            if size <= most[interest is not None]:
                ready = prepare(workspace, method)
                played[name][size] = tuple(ready.play(seed).rounds for seed in range(GAMES))
                print(f"{size:,} agents, interest {interest}, {name}: {played[name][size]}", flush=True)
    return [Line(name, tuple(found), tuple(found.values())) for name, found in played.items()]


@styled
def rounds_figure(everything: Sequence[Line], bounded: Sequence[Line]) -> Figure:
    """Draw rounds against agents, all resources considered above, 20 below."""
    plot, gap = (4.4, 2.0), 0.75
    figure, whole = canvas(
        "Why the published rounds stall",
        "The back-off probability is mostly 0.95: the last rivals leave together, go down their lists in the same "
        f"steps and meet again. Rounds until no agent has anything left to do: median and range of {GAMES} games",
        plot=(plot[0], 2 * plot[1] + gap + 0.25),
        left=0.9,
        right=0.3,
        legend=0.42,
    )
    whole.set_axis_off()
    handles = [
        Line2D([], [], color=colour, ls=DASHES[place % 4], marker="o", ms=3.5, label=line.name)
        for place, (line, colour) in enumerate(zip(everything, COLOURS, strict=True))
    ]
    box, (width, height) = whole.get_position(), figure.get_size_inches()
    legend_above(figure, whole, handles, columns=3, sample=2.0)
    titles = ("Every agent considers all resources", "Every agent considers its 20 best resources")
    for place, (title, lines) in enumerate(zip(titles, (everything, bounded), strict=True)):
        top = box.y1 - (place * (plot[1] + gap) + 0.25) / height
        axes = figure.add_axes((box.x0, top - plot[1] / height, plot[0] / width, plot[1] / height))
        _draw(axes, lines)
        figure.text(MARGIN / width, top + 0.06 / height, title, size=9.0, weight="bold", color=INK, va="bottom")
    return figure


def _draw(axes: Axes, lines: Sequence[Line]) -> None:
    for place, (line, colour) in enumerate(zip(lines, COLOURS, strict=True)):
        games = np.array(line.rounds)
        axes.fill_between(line.agents, games.min(axis=1), games.max(axis=1), color=colour, alpha=0.12, lw=0)
        axes.plot(line.agents, np.median(games, axis=1), color=colour, ls=DASHES[place % 4], marker="o", ms=3.5, lw=1.4)
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_xlabel("agents", color=FAINT_INK)
    axes.set_ylabel("rounds", color=FAINT_INK)


def draw(path: Path) -> Path:
    """Play the games of the figure and write it."""
    save(rounds_figure(growth(EVERYTHING, None), growth(BOUNDED, 20)), path)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="a folder for the figure, in place of the table")
    arguments = parser.parse_args()
    if arguments.out is None:
        print(as_table(losses()))
    else:
        arguments.out.mkdir(parents=True, exist_ok=True)
        print(draw(arguments.out / "turns.png"))


if __name__ == "__main__":
    main()
