"""palmatch compare and palmatch demo: methods side by side, on the user's own files and on a synthetic city."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import ArrayLike

from palmatch.cli import options, show
from palmatch.cli.inputs import BudgetOptions, ProblemOptions, read_inputs
from palmatch.data import city
from palmatch.data.files import write_rows
from palmatch.data.geojson import read_streets
from palmatch.domains import mobility
from palmatch.domains.mobility import read_points
from palmatch.errors import InputError
from palmatch.matching import Matching, format_epsilon
from palmatch.methods import METHODS, Settings, Workspace, prepare
from palmatch.report.results import fairness_table, gain_in_words, loss_in_words
from palmatch.report.words import epsilon_text
from palmatch.studies.compare import COMPARED, Comparison, Row, lost_at
from palmatch.studies.compare import compare as compare_methods
from palmatch.studies.fairness import fairness
from palmatch.studies.limit import CONFIDENCE, LIMIT

_METHODS = ",".join(COMPARED)

# The methods of the demo: each kind of privacy, the paper's own, and both ends. Rounds of some are worth watching.
_SHOWN = ("hungarian", "hungarian-once", "once", "palma", "published", "hungarian-region", "hungarian-geo", "random")
_WATCHED = ("once", "palma", "published")

_PRIVATE = ["rows", "fairness", "problem.notes", "problem.seed"]


def compare(
    agents: Path | None = None,
    resources: Path | None = None,
    *,
    methods: Annotated[str, typer.Option(show_default=_METHODS.replace(",", ", "))] = _METHODS,
    epsilon: str = "1",
    edge: str = "1000",
    areas: str = "3",
    runs: int = 32,
    page: Path | None = None,
    streets: Path | None = None,
    chosen: ProblemOptions,
    budget: BudgetOptions,
    data_seed: options.Natural = 0,
    json: Path | None = None,
) -> None:
    """Compare methods on the same files: welfare lost, privacy spent, rounds, with spread over runs.

    Parameters
    ----------
    agents:
        The agents, as for match; a synthetic city unless given.
    methods:
        Methods with commas between them, or all; limit adds what no private method can beat.
    epsilon:
        ε of every agent whose file row has none; several with commas between them.
    edge:
        Edges of the square regions in metres, with commas.
    page:
        A folder for figures: losses and how evenly all are served (report.html), or, with several ε, loss over ε
        (frontier.png).
    streets:
        Street lines (GeoJSON) to draw under the map of --page.

    Examples
    --------
    Example: palmatch compare agents.csv vehicles.csv --edge 1000,2000
    --methods published,hungarian-region,random --json rows.json

    Example: palmatch compare reviewers.csv papers.csv --domain papers --areas 3,4 --methods published,random

    Example: palmatch compare agents.csv vehicles.csv --methods limit,once,hungarian-once: beside the limit every run is
    on agents drawn from the public prior, and not on those of the file.

    Example: palmatch compare agents.csv vehicles.csv --epsilon 0.1,1,8 --page frontier: what privacy costs.

    Without files it is about a synthetic city, or with --domain papers about a synthetic conference.
    """
    names, budgets = named_methods(methods), options.numbers(epsilon, "--epsilon")
    sizes = chosen.sizes(edge, areas)
    show.check_outputs([agents, resources, streets, *chosen.files], json=json)
    if streets is not None and (page is None or chosen.domain != "mobility" or len(budgets) > 1):
        raise InputError("--streets goes with --page, one ε and --domain mobility: it is drawn under the map.")
    lines = [] if streets is None else read_streets(streets)
    if page is not None:
        if len(sizes) > 1:
            raise InputError(f"Expected one size for --page, got {len(sizes)}; name one, or leave --page out.")
        if names == [LIMIT]:
            raise InputError("Expected a method beside the limit for --page; add one to --methods.")
        show.folder_for(page)
    inputs = read_inputs(agents, resources, chosen, data_seed=data_seed)
    settings, seed = replace(budget.settings, epsilon=budgets[0]), budget.seed
    results = []
    for size in sizes:
        with show.progress_bar(chosen.title(size)) as progress:
            result = compare_methods(
                inputs.problems(size, seed),
                names,
                runs=runs,
                epsilon=budgets if len(budgets) > 1 else None,
                settings=settings,
                seed=seed,
                **chosen.named_size(size),
                progress=progress,
            )
        results.append(result)
    where = " and ".join(path.name for path in (agents, resources) if path is not None)
    where = where or f"A synthetic {'city' if chosen.domain == 'mobility' else 'conference'}"
    if page is not None:
        _write_page(page, results[0], where, settings, seed, lines)
    if show.write_json(json, figures(results, seed)):
        _print_summary(results, where, settings, seed)
        if page is not None:
            shown = "frontier.png" if len(budgets) > 1 else "report.html"
            show.say(f"Open {page / shown}: for you alone, it is computed from true utilities.")


def named_methods(text: str) -> list[str]:
    """Return the methods of a list with commas, the limit among them; `all` for every method."""
    names = list(METHODS) if text.strip() == "all" else [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in METHODS and name != LIMIT]
    if unknown or not names:
        raise METHODS.unknown(unknown[0] if unknown else "", beside=[LIMIT])
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"Expected each method once, got {twice[0]!r} twice in --methods={text!r}.")
    return names


def _write_page(
    folder: Path, result: Comparison, where: str, settings: Settings, seed: int | None, streets: Sequence[ArrayLike]
) -> None:
    # Drawing takes a second before anything else needs it.
    if len(result.epsilons) > 1:
        from palmatch.report.figures import frontier_figure
        from palmatch.report.style import save_both

        told = f"{where}: {show.size_of(result.problem, regions=False)}"
        save_both(frontier_figure(result, told), folder, "frontier")
        return
    from palmatch.report.page import write_report

    write_report(
        folder,
        result,
        title=where,
        headline="once" if "once" in result.runs else next(iter(result.runs)),
        settings=settings,
        seed=seed,
        command=shlex.join(["palmatch", *sys.argv[1:]]),
        notes=[show.FROM_THE_TRUTH, *filter(None, [gain_in_words(result)])],
        streets=streets,
    )


def _print_summary(results: Sequence[Comparison], where: str, settings: Settings, seed: int | None) -> None:
    first = results[0]
    problem, epsilons, runs = first.problem, first.epsilons, max(row.runs for row in first.rows if row.method != LIMIT)
    show.say(f"{where}: {show.size_of(problem, regions=len(results) == 1)}")
    budgets = ", ".join(map(format_epsilon, epsilons))
    show.say(f"{show.counted(runs, 'run')}, ε = {budgets}, δ = {format_epsilon(settings.delta)}")
    show.say_seeded(seed)
    if len(epsilons) > 1:
        for result in results:
            show_losses(result.rows)
            show.say(loss_in_words(lost_at(result)))
    else:
        show_rows([row for result in results for row in result.rows])
    explain_rows(results)
    for sentence in filter(None, map(gain_in_words, results[:1])):
        show.say(sentence)
    if problem.capacities is not None and len(results) == 1:
        show.show_table(*fairness_table(problem, _first(first)))
        show.say(
            "Least: the utility of the worst served. Low: the share of its side with less than half the mean. --json "
            "has the sorted curves."
        )
    show.say(show.FROM_THE_TRUTH)
    if _private_methods(results):
        show.say(f"Not to be published: {show.PRIVATE_EPSILON}")
    show.say_notes([result.problem for result in results])
    own = int(np.isfinite(problem.epsilon).sum())
    if own and len(epsilons) > 1:
        brings = "brings a budget of its own" if own == 1 else "bring budgets of their own"
        show.say(f"Note: {show.counted(own, 'agent')} {brings}, which --epsilon does not change.")


def show_rows(rows: Sequence[Row]) -> None:
    """Print a comparison: everything about each method, or its loss over several sizes of region."""
    if len({(row.edge, row.areas) for row in rows}) > 1:
        show_losses(rows)
        return
    names = ("method", "loss %", "±", "ε median", "ε max", "matched", "rounds")
    lines = [
        (
            row.method,
            # Rounded first, since the optimum's loss of next to nothing may be a negative zero.
            f"{round(100 * row.loss_mean, 1) + 0.0:.1f}",
            f"{100 * row.loss_sd:.1f}",
            epsilon_text(row.epsilon_median),
            epsilon_text(row.epsilon_max),
            f"{row.matched_mean:,.1f}".removesuffix(".0") if row.matched_mean >= 0 else "-",
            f"{row.rounds_mean:,.0f}" if row.rounds_mean else "-",
        )
        for row in rows
    ]
    show.show_table(names, lines)


def show_losses(rows: Sequence[Row]) -> None:
    """Print the loss of each method in columns: by size of region, or by ε with what has no ε of its own at the end."""
    by_size = len({(row.edge, row.areas) for row in rows}) > 1

    def title(row: Row) -> str:
        if by_size:
            return f"{row.edge:g} m" if row.areas is None else show.counted(row.areas, "area")
        return "any ε" if math.isnan(row.epsilon) else f"ε {format_epsilon(row.epsilon)}"

    titles = list(dict.fromkeys(title(row) for row in sorted(rows, key=lambda row: math.isnan(row.epsilon))))
    # More columns have room with the spread below the mean.
    gap = "\n±" if len(titles) > 4 else " ± "
    lines: dict[str, dict[str, str]] = {}
    for row in rows:
        told = f"{100 * row.loss_mean:.1f}{gap}{100 * row.loss_sd:.1f}"
        lines.setdefault(row.method, dict.fromkeys(titles, ""))[title(row)] = told
    show.show_table(["loss in %", *titles], [(method, *told.values()) for method, told in lines.items()])


def explain_rows(results: Sequence[Comparison]) -> None:
    """Say what the columns of a comparison mean, and which ε of it cannot be compared with the others.

    Notes
    -----
    loss:
        Loss is against the full-information optimum; ± is the standard deviation over runs, rounds are their mean.
    geo:
        Methods with geo in their name: ε holds for two places half an edge apart and grows with the distance
        (geo-indistinguishability); it does not compare with the ε of the others.
    limit:
        limit: no ε-PLDP method{delta} loses less in expectation, interactive or centralised; methods of other
        guarantees may. It is about agents drawn from the public prior, so every run drew its own. Losses of methods are
        1 - mean welfare / mean optimum; the limit's is against the lower {confidence:g} % confidence bound of the
        expected optimum ({crowds:,} crowds). palmatch limit writes its proof.
    """
    rows = [row for result in results for row in result.rows]
    told = options.read_docstring(explain_rows)[1]
    none = " ε none: no privacy." if any(math.isinf(row.epsilon_max) for row in rows) else ""
    show.say(told["loss"] + none)
    if any(row.method in METHODS and METHODS[row.method].notion == "geo-indistinguishability" for row in rows):
        show.say(told["geo"])
    if (limit := results[0].limit) is not None:
        delta, crowds = show.with_delta(limit.bounds[0].delta), limit.optimum.crowds
        show.say(told["limit"].format(delta=delta, confidence=100 * CONFIDENCE, crowds=crowds))


def _private_methods(results: Sequence[Comparison]) -> list[str]:
    """Return methods whose ε tells something about single agents."""
    played = {method: runs[0].matching for result in results for method, runs in result.runs.items()}
    return [method for method, matching in played.items() if not matching.epsilon_is_public]


def figures(results: Sequence[Comparison], seed: int | None) -> dict[str, Any]:
    """Return the comparison as plain data, for JSON; figures that mean nothing are null."""
    problem, budgets = results[0].problem, results[0].epsilons
    told: dict[str, Any] = {
        "problem": show.pick(problem, "agents resources interest notes public_notes")
        | {"seed": seed, "simulation": seed is not None},
        "not_to_be_published": _PRIVATE,
        "epsilon_not_to_be_published": _private_methods(results),
        "rows": [_plain(row, result) for result in results for row in result.rows],
        "fairness": [
            {"method": method} | _size(result) | asdict(fairness(result.problem, matching))
            for result in results
            for method, matching in _first(result).items()
        ],
    }
    if len(budgets) > 1:
        lost = [(result, lost_at(result)) for result in results]
        told["epsilons"] = budgets
        told["centralised"] = [method for method in results[0].runs if METHODS.find(method).centre]
        told["lost"] = [_size(result) | asdict(one) | {"words": loss_in_words(one)} for result, one in lost]
        told["not_to_be_published"] = [*_PRIVATE[:2], "lost", *_PRIVATE[2:]]
    return told


def _first(result: Comparison) -> dict[str, Matching]:
    """Return the matching of each method's first run, which is of the problem that the comparison shows."""
    return {method: runs[0].matching for method, runs in result.runs.items() if runs}


def _size(result: Comparison) -> dict[str, object]:
    return {"edge": result.rows[0].edge, "areas": result.rows[0].areas}


def _plain(row: Row, result: Comparison) -> dict[str, object]:
    """Return a row as plain data; that of the limit with the bound on welfare and the optimum that it refers to."""
    if row.method != LIMIT or result.limit is None:
        return asdict(row)
    bound = next(bound for bound in result.limit.bounds if bound.epsilon == row.epsilon)
    told = {"welfare_at_most": bound.welfare, "certified": bound.certified, "reached": bound.reached}
    return asdict(row) | told | {"optimum": asdict(result.limit.optimum)}


def demo(
    *,
    out: Path = Path("demo"),
    hour: float = 8.0,
    edge: float = 1000.0,
    limit: bool = False,
    runs: int = 32,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    seed: options.MaybeNatural = None,
    data_seed: options.Natural = 0,
    json: Path | None = None,
) -> None:
    """Match a morning in a synthetic city by many methods, and write a page about it.

    Parameters
    ----------
    out:
        The folder for report.html and its pictures.
    hour:
        Hour of the day: 5, 8, 11, 19, or any other.
    limit:
        Add what no private method can beat; every run then draws its own agents.

    Examples
    --------
    Example: palmatch demo --out demo --data-seed 1
    """
    from palmatch.report.page import write_report

    show.check_outputs(json=json)
    folder = show.folder_for(out)
    batch = city.batch(hour, seed=data_seed)
    files = {name: folder / f"{name}.csv" for name in ("agents", "vehicles")}
    for name, places in (("agents", batch.requests), ("vehicles", batch.vehicles)):
        ids = [f"{name[0]}{row}" for row in range(len(places))]
        write_rows(files[name], {"id": ids, "lat": places[:, 0], "lon": places[:, 1]})
    # From the files, so that whoever matches them gets the same problem.
    agents, vehicles = read_points(files["agents"], role="agents"), read_points(files["vehicles"], role="resources")
    workspace = Workspace(mobility.problem(agents, vehicles, edge=edge))
    settings = Settings(epsilon=epsilon, delta=delta)
    names = [*([LIMIT] if limit else []), *_SHOWN]
    command = "palmatch demo" + ("" if seed is None else f" --seed {seed}")
    with show.progress_bar("demo") as progress:
        result = compare_methods(
            workspace, names, runs=runs, settings=settings, seed=seed, edge=edge, progress=progress
        )
        watched = {name: prepare(workspace, name, settings=settings, trace=True).play(seed) for name in _WATCHED}
        page, *_ = write_report(
            folder,
            result,
            title=f"A synthetic city at {int(hour):02d}:{round(hour % 1 * 60):02d}",
            headline="once",
            settings=settings,
            seed=seed,
            command=f"{command} --data-seed {data_seed} --hour {hour:g} --edge {edge:g} --runs {runs}"
            + " --limit" * limit,
            outline=city.outline(),
            traces=watched,
        )
    if show.write_json(json, figures([result], seed)):
        show.say(f"A synthetic city, {hour:g} o'clock: {show.size_of(workspace.problem)}")
        show.say_seeded(seed)
        show_rows(sorted(result.rows, key=lambda row: row.loss_mean))
        explain_rows([result])
        show.say(f"{show.FROM_THE_TRUTH} Here they may be: the city is synthetic.")
        show.say(f"The files are {files['agents']} and {files['vehicles']}. Match them yourself:")
        show.say(f"  palmatch match {files['agents']} {files['vehicles']} --out pairs.csv")
        show.say(f"Open {page} to see which agent got which vehicle.")
        show.say("Play it round by round, or be an agent yourself, in the browser at http://127.0.0.1:8770/ after")
        show.say(f"  palmatch explore {files['agents']} {files['vehicles']}")
