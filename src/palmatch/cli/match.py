"""palmatch match: one or two files in, a file of pairs out."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from palmatch.atomic import write_atomic
from palmatch.cli import options, show
from palmatch.cli.inputs import BudgetOptions, Kept, OutputOptions, ProblemOptions, read_inputs
from palmatch.data.feeds import free_evses, is_feed
from palmatch.data.files import write_rows
from palmatch.data.scores import MATRIX_SUFFIX, read_assignments, read_json, read_users
from palmatch.errors import InputError
from palmatch.guarantee import deployment_record
from palmatch.matchers.lists import ValueLists
from palmatch.matching import Matching
from palmatch.methods import METHODS, Method, Workspace, prepare
from palmatch.methods.baselines import optimal_welfare
from palmatch.methods.stored import StoredReports, alternates, keeping, match_again, reported_lists
from palmatch.methods.workspace import representative_utilities
from palmatch.problem import Problem
from palmatch.report.results import (
    assignments,
    bulk_assignment,
    edges,
    fairness_lines,
    is_conference,
    matrix_text,
    reservations,
    shortfall_lines,
    with_assigned,
)
from palmatch.studies.fairness import every_unit, fairness, lacking_agents, lacking_resources
from palmatch.studies.plan import gain_of_budget

# Up to here the optimum takes less than a second, and the loss against it is told without being asked for; a tenth of
# it where there are capacities, a sixteenth where agents are matched with agents.
_CHEAP_PAIRS = 4_000_000


def match(
    agents: Path,
    resources: Path | None = None,
    *,
    out: Path,
    method: Annotated[str, typer.Option(autocompletion=lambda: list(METHODS))] = "once",
    chosen: ProblemOptions,
    budget: BudgetOptions,
    asked: OutputOptions,
    threshold: Annotated[float | None, typer.Option(min=0.0)] = None,
    score: bool = False,
    cluster: str | None = None,
    memory: str | None = None,
    explain: bool = False,
    json: Path | None = None,
) -> None:
    """Match agents to resources, or with each other: files in, a file of pairs out.

    Parameters
    ----------
    out:
        Where the pairs go: .csv, .parquet, .json (openreview-matcher, OCPI), .in (matrix of papers); - for CSV.
    method:
        once, hungarian-once, hungarian-region, palma, published, hungarian-geo, random or hungarian; all: palmatch
        methods.
    threshold:
        Utility below which an agent or resource counts as badly served; half the mean unless given.
    score:
        Tell the loss against the optimum also where finding that takes long; tile by tile, the welfare.
    cluster:
        Match tile by tile on a Dask cluster whose workers share the folder --out: HOST:PORT, or local:N.
    memory:
        Match tile by tile, in processes that take this much together, such as 4GB.

    Examples
    --------
    Example: palmatch match agents.csv vehicles.csv --edge 1000 --out pairs.csv

    Example: palmatch match reviewers.csv papers.csv --domain papers --capacity 3 --demand 2
    --conflicts conflicts.csv --out pairs.csv

    Example: palmatch match agents/ vehicles/ --interest 20 --memory 4GB --out pairs
    """
    METHODS.find(method)
    if cluster is not None or memory is not None:
        # Most matchings need neither.
        from palmatch.cli.tiles import match_tiles, workers_of

        if asked != OutputOptions():
            raise InputError("--alternates and --keep go with one process: leave --cluster and --memory out.")
        workers = workers_of(cluster, memory)
        match_tiles(
            agents,
            resources,
            out,
            workers,
            method=method,
            chosen=chosen,
            budget=budget,
            score=score,
            explain=explain,
            json=json,
        )
        return
    as_json = out.suffix.lower() == ".json"
    if asked.unavailable is not None and asked.keep is None:
        raise InputError("--unavailable goes with --keep, the earlier matching: give both.")
    if asked.alternates and str(out) == "-":
        raise InputError("--alternates are written beside --out: give it the name of a file.")
    if (asked.hotcrp and out.suffix.lower() != ".csv") or (asked.invitation is not None and not as_json):
        raise InputError("--hotcrp goes with --out in .csv, --invitation with --out in .json: give --out that ending.")
    if chosen.pairs and (as_json or asked.hotcrp or out.suffix.lower() == MATRIX_SUFFIX):
        raise InputError("Forms of papers do not go with --pairs: give --out a name in .csv or .parquet.")
    read = [agents, resources, asked.keep, asked.unavailable, *chosen.files]
    show.check_outputs(read, out=out, json=json, kinds=(".csv", ".parquet", ".json", MATRIX_SUFFIX))
    kept, stored = _read_kept(asked.keep, asked.unavailable, METHODS.find(method))
    problem = read_inputs(agents, resources, chosen, kept=kept).problem(chosen.size, budget.seed)
    evses = None
    if as_json and chosen.domain == "mobility" and resources is not None:
        evses = free_evses(resources) if is_feed(resources) else {}
    # A row for each agent and value: not for crowds, which no one asks for replacements.
    writes_reports = is_conference(problem) and str(out) != "-"
    with show.progress_bar("matching") as progress:
        if kept is None:
            found = METHODS.find(method)
            if writes_reports or asked.alternates:
                found = keeping(found, budget.settings, stored)
            prepared = prepare(Workspace(problem, progress), found, settings=budget.settings)
            matching = prepared.play(budget.seed)
        else:
            reports = stored[0] if stored else None
            source = str(_beside(kept.source, "reports"))
            matching = match_again(problem, METHODS.find(method), reports, source, budget.seed)
    units = every_unit(problem, matching)
    by_agent = units[np.lexsort((units[:, 1], units[:, 0]))]
    if stored and writes_reports:
        show.write_json(_beside(out, "reports"), stored[0])
    if asked.alternates:
        lists = _public_lists(problem, method, stored)
        others = alternates(problem, by_agent, lists, asked.alternates)
        show.write_json(_beside(out, "alternates"), assignments(problem, others))
    if asked.invitation is not None:
        show.write_json(out, edges(assignments(problem, by_agent), asked.invitation, method))
    elif as_json:
        told = assignments(problem, by_agent) if evses is None else reservations(problem, by_agent, evses)
        show.write_json(out, told)
    elif asked.hotcrp:
        write_rows(out, bulk_assignment(problem, by_agent))
    elif out.suffix.lower() == MATRIX_SUFFIX:
        write_atomic(out, matrix_text(problem, by_agent))
    else:
        write_rows(out, with_assigned(problem, matching))
    if str(out) == "-":
        show.results_to_stderr()
    harder = 16 if problem.pairs else 1 if problem.capacities is None else 10
    is_cheap = harder * problem.agents * problem.resources <= _CHEAP_PAIRS
    best = optimal_welfare(problem) if score or is_cheap else None
    gain = gain_of_budget(problem, budget.settings, method) if kept is None else None
    if json is not None:
        figures = _figures(problem, matching, best, budget.seed)
        figures["gain"] = None if gain is None else gain._asdict() | {"sentence": gain.sentence}
        figures["fairness"] = asdict(fairness(problem, matching, threshold=threshold))
        if not show.write_json(json, figures):
            return
    _print_summary(problem, matching, best, threshold, explain)
    if gain is not None and not gain.measurable:
        show.say(gain.sentence)
    if str(out) != "-":
        show.say(f"Pairs are in {out}.")
    if is_conference(problem) and str(out) != "-":
        show.say(
            f"Next: upload {out.name}, after you have looked at it. Reviewers may be told what stands under Guarantee, "
            "and what is public. Publish no bids, no scores, and nothing that is marked as not to be published."
            + f" Keep {_beside(out, 'reports').name}: --keep replaces reviewers that decline."
            * bool(stored)
        )


def _beside(out: Path, what: str) -> Path:
    return out.with_suffix(f".{what}.json")


def _read_kept(keep: Path | None, unavailable: Path | None, method: Method) -> tuple[Kept | None, list[StoredReports]]:
    """Return what is kept of an earlier matching, and its reports, where the method goes by reports."""
    if keep is None:
        return None, []
    kept = Kept(keep, read_assignments(keep), frozenset(() if unavailable is None else read_users(unavailable)))
    return kept, [read_json(_beside(keep, "reports"))] if method.matcher is not None else []


def _public_lists(problem: Problem, method: str, stored: list[StoredReports]) -> ValueLists:
    """Return what runners-up follow from: reports, or regions alone where the method looks at nothing else."""
    if stored:
        return reported_lists(problem, stored[0], "the matching")
    if METHODS.find(method).parts[0] != "region":
        raise InputError(
            f"--alternates follow from reports or from regions alone, and {method} has neither: choose another method."
        )
    values, count = representative_utilities(problem), len(problem.regions)
    start = np.arange(count + 1) * problem.resources
    return ValueLists(problem.region_index, start, np.tile(np.arange(problem.resources), count), values.ravel())


def _print_summary(
    problem: Problem, matching: Matching, best: float | None, threshold: float | None, explain: bool
) -> None:
    show.say(show.size_of(problem))
    told = f"{matching.method}: {matching.matched:,} matched"
    if problem.capacities is not None and not problem.pairs:
        told += f" with {show.counted(matching.filled, 'unit')}"
    if matching.rounds:
        told += f" in {show.counted(matching.rounds, 'round')}"
    if len(problem.assigned):
        told += f", and {show.counted(len(problem.assigned), 'pair')} assigned beforehand"
    told += f", welfare {matching.welfare:,.2f}"
    if best:
        told += f", {round(100 * (1 - matching.welfare / best), 1) + 0.0:.1f} % below the optimum"
    show.say(told + ("; --score finds the optimum, and so the loss" if best is None else ""))
    lines = []
    if problem.pairs and (without := int((problem.demand > 0).sum()) - matching.matched):
        lines.append(f"{show.counted(without, 'agent')} {'goes' if without == 1 else 'go'} without a partner.")
    elif not problem.pairs and (problem.capacities is not None or matching.matched < problem.agents):
        lines += shortfall_lines(problem, matching)
    if problem.capacities is not None:
        lines += fairness_lines(problem, fairness(problem, matching, threshold=threshold))
    for line in lines:
        show.say(line, indent="    ")
    show.show_guarantee(matching.guarantee, explain=explain)
    show.say(show.FROM_THE_TRUTH)
    if not matching.epsilon_is_public:
        show.say(f"Not to be published: {show.PRIVATE_EPSILON}")
    show.say_notes([problem])


def _figures(problem: Problem, matching: Matching, best: float | None, seed: int | None) -> dict[str, Any]:
    unfilled: dict[str, Any] | None = None
    if problem.capacities is not None and not problem.pairs:
        sides = {"agents": lacking_agents(problem, matching), "resources": lacking_resources(problem, matching)}
        unfilled = {side: [one._asdict() for one in lacking] for side, lacking in sides.items()}
    # What a guarantee tells of agents whose own utilities are compared with the possible types.
    private = () if matching.epsilon_is_public else ("guarantee.uncovered", "guarantee.applies_to", "record")
    return {
        "guarantee": asdict(matching.guarantee),
        "record": deployment_record(matching.guarantee, *METHODS.find(matching.method).parts),
        "problem": show.pick(problem, "agents resources interest notes public_notes")
        | {"regions": len(problem.regions), "assigned": len(problem.assigned)}
        | {"seats": int(problem.capacity.sum()), "units": int(problem.demand.sum())}
        | {"conflicts": len(problem.original_capacities.conflicts)},
        **show.pick(matching, "method matched filled rounds welfare"),
        "seed": seed,
        "unfilled": unfilled,
        "fairness": None,
        "loss": 1 - matching.welfare / best if best else None,
        "epsilon_of_agents_is_public": matching.epsilon_is_public,
        "not_to_be_published": ["welfare", "loss", "fairness", "problem.notes", "seed", *private],
    }


def methods(*, json: Path | None = None) -> None:
    """List all methods: what an agent reveals, and how that becomes a matching.

    Notes
    -----
    columns:
        A method is a mechanism, which decides what an agent reveals, and a matcher, which knows nothing else. report:
        one report under ε; region: nothing but the region; laplace: a noisy place; rounds: attempts, looks and
        back-offs. centre: whether a party other than agents and resources computes the matching.
    unproved:
        published states the paper's guarantee, which is not proved.

    Examples
    --------
    Example: palmatch methods --json methods.json
    """
    show.check_outputs(json=json)
    rows = [
        show.pick(method, "name help notion spends centre proved has_delta reveals")
        | {"mechanism": method.parts[0], "matcher": method.parts[1]}
        for method in METHODS.values()
    ]
    if show.write_json(json, {"methods": rows}):
        lines = []
        for row in rows:
            bound = "none" if row["notion"] == "none" else "ε" + ", δ" * row["has_delta"] if row["spends"] else "ε = 0"
            notion = {"geo-indistinguishability": "geo"}.get(row["notion"], row["notion"])
            centre = "yes" if row["centre"] else "no"
            lines.append((row["name"], row["mechanism"], row["matcher"], notion, bound, centre))
        show.show_table(("method", "mechanism", "matcher", "notion", "guarantee", "centre"), lines, left=5)
        told = options.read_docstring(methods)[1]
        show.say(told["columns"])
        show.say(told["unproved"])
