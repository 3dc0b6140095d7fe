"""What else the paper's second test-case may have meant: its readings, tried one at a time.

    python -m benchmarks.paper_readings [--papers FILE --reviewers FILE] [--areas 3,4,5] [--runs 32] [--out readings]

The published numbers of that test-case differ from ours by more than chance, so each place where its text is open is
a field of `Reading`, and a reading is played like the study itself. Nothing here is recommended: most of these
readings guarantee less than they seem to, and none of them is needed to use the package. docs/reproduction.md
quotes the table. What was computed is kept in the folder, and the same command goes on from there.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import log
from pathlib import Path
from typing import Final, Literal, TypeAlias

import numpy as np
import polars as pl

import palmatch
from palmatch.device.agent import Agent, Attempt
from palmatch.domains.papers import OTHER, SECONDARY, Conference
from palmatch.matchers.optimal import optimal_matching
from palmatch.methods import PreparedGame, Settings, Workspace, prepare_game
from palmatch.methods.rounds import largest_costs, published_accounting, published_policy
from palmatch.palma.accountant import compute_epsilon, cost_of
from palmatch.palma.game import region_tables, rules_of, simulate
from palmatch.palma.policy import Policy
from palmatch.problem import FloatArray, IntArray, Problem, Region
from palmatch.regions.own import own_tables
from palmatch.streams import draw, stream, streams
from palmatch.studies.reproduce import PapersRecords, papers_of_conference, papers_of_files
from palmatch.studies.tasks import Task, run_tasks

Contest: TypeAlias = Literal["none", "one", "in turn"]
Charge: TypeAlias = Literal["all", "seen", "collisions", "looks"]
Neighbours: TypeAlias = Literal["all", "exactly", "present"]
RandomRule: TypeAlias = Literal["pairs", "collide", "one of them", "as many", "edges"]

# Stands for 0, since a utility has to be positive; far below anything that could matter.
NOTHING: Final = 1e-9

_RUNS_IN_A_CELL: Final = 8


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to read the test-case; the defaults are the study's own.

    Attributes
    ----------
    name, why:
        What is read differently, and what in the paper allows it.
    reviewer_rest, paper_rest, paper_secondary:
        The value of an area that a reviewer or a paper does not have, and of a paper's secondary areas.
    surplus:
        Whether reviewers with too many areas act on some of them ("drop") or on all ("keep").
    interest, worthless_beyond:
        K: how many papers each possible reviewer cares for (None: all), and whether a paper that no reviewer of one's
        region cares for is worth nothing.
    neighbours:
        The possible reviewers of a region: all with up to m further areas, those with exactly m, or those present.
    ties:
        Which way round ties are broken.
    contest:
        What becomes of a paper that several attempt at once: none gets it, one of them does, or the first does,
        since they act in turn.
    charge:
        What is charged: every collision and every look, what others can see (not a look at a paper that is taken),
        collisions only, or looks only.
    truth_selection:
        ζ_S.
    acted_on:
        Whether welfare and optimum are those of the areas that reviewers act on, not of all that they have.
    random_rule:
        What "random" means: shuffled pairs; each reviewer draws a paper, and a contested one goes to none, or to one
        of them; as many reviewers as papers draw one each; or as many edges are drawn and kept if both ends are free.
    areas:
        The numbers of areas to play it at.
    """

    name: str
    why: str
    reviewer_rest: float = OTHER
    paper_rest: float = OTHER
    paper_secondary: float = SECONDARY
    surplus: Literal["drop", "keep"] = "drop"
    interest: int | None = None
    worthless_beyond: bool = False
    neighbours: Neighbours = "all"
    ties: Literal["by id", "reversed"] = "by id"
    contest: Contest = "none"
    charge: Charge = "all"
    truth_selection: float = 0.1
    acted_on: bool = False
    random_rule: RandomRule = "pairs"
    areas: tuple[int, ...] = (3,)


_BOUNDED: Final = "appendix, Bounding the Set of Desirable Resources"
_MAP_BOUND: Final = "the source's note on mapBoundR: utility 0 beyond the neighbours' interests"
_JOINT: Final = "the three readings that help, taken together"

READINGS: Final[tuple[Reading, ...]] = (
    Reading("as the study reads it", "the text, read closely"),
    Reading("surplus areas kept", "the text does not say what becomes of reviewers with more areas", surplus="keep"),
    Reading("scored by the areas acted on", "the optimum could be that of the cut labels", acted_on=True),
    Reading("all areas of a paper count 1", "primary areas could matter for reviewers only", paper_secondary=1.0),
    Reading("rest of a paper 0", "the 0.1 is explained by the reviewers' broad expertise", paper_rest=NOTHING),
    Reading("rest of both 0", "the footnote's cosine distances of 0.2, 0.25 and 0.3 come out with 0, not with 0.1",
            paper_rest=NOTHING, reviewer_rest=NOTHING),
    Reading("neighbours with exactly m areas", "“has the same primary area, and at most m more”", neighbours="exactly"),
    Reading("neighbours who are there", "“reviewers with the same primary subject area”", neighbours="present"),
    Reading("ties the other way round", "papers with equal areas have equal utilities", ties="reversed"),
    Reading("ζ_S = 0.2", "the main text's value; the appendix has 0.1", truth_selection=0.2),
    Reading("ζ_S = 1", "no noise in selections", truth_selection=1.0),
    Reading("interest in 10 papers", _BOUNDED, interest=10),
    Reading("interest in 5 papers", _BOUNDED, interest=5),
    Reading("interest in 4 papers", _BOUNDED, interest=4),
    Reading("interest in 3 papers", _BOUNDED, interest=3),
    Reading("interest in 4 papers, the rest worthless", _MAP_BOUND, interest=4, worthless_beyond=True, areas=(3, 4, 5)),
    Reading("interest in 3 papers, the rest worthless", _MAP_BOUND, interest=3, worthless_beyond=True, areas=(3, 4, 5)),
    Reading("one of several gets a paper", "a collision could leave one winner", contest="one"),
    Reading("reviewers act in turn", "a simulation could loop over the agents", contest="in turn"),
    Reading("only what is seen is charged", "signals are “an attempt … or a back-off”", charge="seen"),
    Reading("only collisions are charged", "a look could be free", charge="collisions"),
    Reading("only looks are charged", "a back-off could be free", charge="looks"),
    Reading("random: a contested paper is lost", "each reviewer draws a paper", random_rule="collide"),
    Reading("random: one of several gets it", "each reviewer draws a paper", random_rule="one of them"),
    Reading("random: 73 reviewers draw", "as many reviewers as papers draw one each", random_rule="as many"),
    Reading("random: 73 edges", "“picking edges randomly in a fully connected bipartite graph”", random_rule="edges"),
    Reading("interest in 4, rest worthless, in turn", _JOINT, interest=4, worthless_beyond=True, contest="in turn",
            areas=(3, 4, 5)),
    Reading("interest in 3, rest worthless, in turn", _JOINT, interest=3, worthless_beyond=True, contest="in turn",
            areas=(3, 4, 5)),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReadConference(Conference):
    """The papers domain with another value for the rest, or with other neighbours."""

    rest: float = OTHER
    neighbours: Neighbours = "all"
    present: FloatArray | None = None

    def types_of(self, region: Region) -> FloatArray:
        """Return the possible reviewers of a region, the bare primary area first."""
        types = Conference.types_of(self, region)
        types = np.where(types == OTHER, self.rest, types)
        if self.neighbours == "exactly":
            return types[[0, *np.flatnonzero((types == SECONDARY).sum(axis=1) == self.secondary)]]
        if self.neighbours == "present" and self.present is not None:
            here = self.present[self.present.argmax(axis=1) == types[0].argmax()]
            return np.vstack((types[:1], np.unique(here, axis=0)))
        return types


def read_problem(records: PapersRecords, reading: Reading, areas: int, seed: int) -> Problem:
    """Return the problem of a run as a reading has it; the seed draws the same primary areas for all readings."""
    problem = records.problem(areas, seed, surplus=reading.surplus, interest=reading.interest)
    domain = problem.domain
    assert isinstance(domain, Conference)
    types, truth = (np.where(rows == OTHER, reading.reviewer_rest, rows) for rows in (problem.types, problem.truth))
    marks = np.where(domain.papers == OTHER, reading.paper_rest, domain.papers)
    marks = np.where(domain.papers == SECONDARY, reading.paper_secondary, marks)
    order = problem.resource_order
    return replace(
        problem,
        domain=ReadConference(
            marks, domain.areas, domain.secondary, reading.reviewer_rest, reading.neighbours, present=types
        ),
        types=types,
        truth=types if reading.acted_on else truth,
        resource_order=order if reading.ties == "by id" else order.max() - order,
    )


def worth(workspace: Workspace, reading: Reading) -> FloatArray:
    """Return what each paper is worth to each reviewer (N x R) when welfare is added up."""
    utilities = workspace.problem.true_utility()
    if not reading.worthless_beyond:
        return utilities
    cared_for = np.zeros(utilities.shape, dtype=np.bool_)
    for number, region in enumerate(workspace.regions):
        cared_for[np.ix_(workspace.problem.region_index == number, region.resources)] = True
    return np.where(cared_for, utilities, 0.0)


def play_reading(records: PapersRecords, reading: Reading, areas: int, runs: range, seed: int) -> pl.DataFrame:
    """Play a reading; a row for each run."""
    return pl.DataFrame([_one_run(records, reading, areas, run, seed) for run in runs], schema=_SCHEMA)


def _one_run(records: PapersRecords, reading: Reading, areas: int, run: int, seed: int) -> dict[str, object]:
    own = stream(seed, run)
    workspace = Workspace(read_problem(records, reading, areas, own))
    settings = Settings(truth_selection=reading.truth_selection)
    ready = _charging(prepare_published(workspace, settings), reading.charge)
    table = worth(workspace, reading)
    best = _welfare(table, optimal_matching(table))
    resource_of, spent = _play(workspace, ready, reading, own)
    # The paper's formula as it stands: agents that were charged nothing are at its floor, also those without a budget.
    epsilon = compute_epsilon(cost_of(spent, ready.costs), order=settings.order, delta=settings.delta)
    got = resource_of >= 0
    unless_lost = np.where(got, epsilon, log(1 / settings.delta) / settings.order)
    by_chance = random_assignment(reading.random_rule, *table.shape, chance=np.random.default_rng([own, 1]))
    return {
        "reading": reading.name,
        "areas": areas,
        "run": run,
        "loss": 1.0 - _welfare(table, resource_of) / best,
        "random": 1.0 - _welfare(table, by_chance) / best,
        "median_all": float(np.median(epsilon)),
        "median_matched": float(np.median(epsilon[got])),
        "above_all": float((epsilon > 0.75).mean()),
        "above_matched": float((epsilon[got] > 0.75).mean()),
        "above_unless_lost": float((unless_lost > 0.75).mean()),
        "matched": int(got.sum()),
    }


_SCHEMA: Final = pl.Schema(
    {"reading": pl.String(), "areas": pl.Int32(), "run": pl.Int32()}
    | {name: pl.Float64() for name in ("loss", "random", "median_all", "median_matched")}
    | {name: pl.Float64() for name in ("above_all", "above_matched", "above_unless_lost")}
    | {"matched": pl.Int32()}
)


def _welfare(worth_of: FloatArray, resource_of: IntArray) -> float:
    agents = np.flatnonzero(resource_of >= 0)
    return float(worth_of[agents, resource_of[agents]].sum())


@dataclass(frozen=True, slots=True)
class Ready:
    """PALMA as published, before the game: its policy, its game, and each agent's c_max."""

    policy: Policy
    game: PreparedGame
    costs: FloatArray


def prepare_published(workspace: Workspace, settings: Settings) -> Ready:
    """Prepare the game of `published`, and keep what each agent's action costs by the paper's accounting."""
    policy = published_policy(workspace.problem, settings)
    costs = largest_costs(workspace, policy, workspace.tables(policy), settings.order)
    return Ready(policy, prepare_game(workspace, policy, partial(published_accounting, settings, costs=costs)), costs)


def _charging(ready: Ready, charge: Charge) -> Ready:
    """Make a look or a back-off free where a reading has it so."""
    allowance = ready.game.allowance
    if charge == "collisions":
        allowance = replace(allowance, selection=np.zeros_like(allowance.selection))
    if charge == "looks":
        allowance = replace(allowance, backoff=np.zeros_like(allowance.backoff))
    return replace(ready, game=replace(ready.game, allowance=allowance))


def _play(workspace: Workspace, ready: Ready, reading: Reading, seed: int) -> tuple[IntArray, IntArray]:
    """Return who got what and the charged actions of each."""
    if reading.contest != "none" or reading.charge == "seen":
        return play_agents(workspace, ready, reading, seed)
    game, names = ready.game, workspace.randomness(seed).private
    ends = simulate(game.public, game.own, game.rules, game.allowance, names=names)
    return ends.resource_of, ends.spent


def play_agents(workspace: Workspace, ready: Ready, reading: Reading, seed: int) -> tuple[IntArray, IntArray]:
    """Play with one `Agent` object each, in an environment whose rules may differ from the compiled one's."""
    rules, own = rules_of(ready.policy), own_tables(workspace.problem, workspace.regions, snapped=False)
    regions = [
        region_tables(ready.game.public, ready.game.allowance, number) for number in range(len(workspace.regions))
    ]
    players = [
        Agent(
            regions[int(ready.game.public.region_of_agent[agent])],
            own.of(agent).tolist(),
            int(ready.game.allowance.budget[agent]),
            rules=rules,
            draw=partial(draw, int(name)),
        )
        for agent, name in enumerate(streams(seed, workspace.keys))
    ]
    game = _Environment(
        reading.contest, free_if_taken=reading.charge == "seen", chance=np.random.default_rng([seed, 2])
    )
    step, active = 0, list(range(len(players)))
    while active:
        step += 1
        game.step(players, active, step)
        active = [
            n for n in active if players[n].held is None and not game.held.issuperset(players[n].region.resources)
        ]
    resource_of = np.array([-1 if player.held is None else player.held for player in players])
    return resource_of, np.array([player.spent for player in players])


class _Environment:
    """What answers the agents: who holds what, and who gets a contested paper."""

    def __init__(self, contest: Contest, *, free_if_taken: bool, chance: np.random.Generator) -> None:
        self.contest = contest
        self.free_if_taken = free_if_taken
        self.chance = chance
        self.held: set[int] = set()

    def step(self, players: Sequence[Agent], active: Sequence[int], step: int) -> None:
        """Let all agents act, one after the other or at once."""
        if self.contest == "in turn":
            for n in active:
                self._at_once(players, [n], step)
        else:
            self._at_once(players, active, step)

    def _at_once(self, players: Sequence[Agent], active: Sequence[int], step: int) -> None:
        spent = {n: players[n].spent for n in active}
        decisions = {n: players[n].decide(step) for n in active}
        contenders: dict[int, list[int]] = {}
        for n, decision in decisions.items():
            if isinstance(decision, Attempt):
                contenders.setdefault(decision.resource, []).append(n)
        winners = {resource: self._winner(resource, rivals) for resource, rivals in contenders.items()}
        for n, decision in decisions.items():
            if not isinstance(decision, Attempt):
                free = decision.resource not in self.held and decision.resource not in contenders
                players[n].saw(free=free)
                if self.free_if_taken and not free:
                    players[n].spent = spent[n]
            elif winners[decision.resource] == n:
                players[n].won()
            else:
                players[n].collided(step)
        self.held.update(resource for resource, winner in winners.items() if winner is not None)

    def _winner(self, resource: int, rivals: Sequence[int]) -> int | None:
        if resource in self.held:
            return None
        if len(rivals) == 1:
            return rivals[0]
        return rivals[int(self.chance.integers(len(rivals)))] if self.contest == "one" else None


def random_assignment(rule: RandomRule, agents: int, resources: int, *, chance: np.random.Generator) -> IntArray:
    """Return a random assignment, -1 for agents without a resource."""
    resource_of = np.full(agents, -1, dtype=np.int64)
    pairs = min(agents, resources)
    if rule == "pairs":
        resource_of[chance.permutation(agents)[:pairs]] = chance.permutation(resources)[:pairs]
    elif rule == "edges":
        edges = chance.permutation(agents * resources)[:pairs]
        for agent, resource in zip(edges // resources, edges % resources, strict=True):
            if resource_of[agent] < 0 and resource not in resource_of:
                resource_of[agent] = resource
    else:
        drawers = chance.permutation(agents)[: pairs if rule == "as many" else agents]
        drawn = chance.integers(resources, size=len(drawers))
        values, first, counts = np.unique(drawn, return_index=True, return_counts=True)
        kept = counts == 1 if rule == "collide" else counts >= 1
        resource_of[drawers[first[kept]]] = values[kept]
    return resource_of


def tasks(records: PapersRecords, *, runs: int, seed: int, areas: Sequence[int]) -> list[Task]:
    """Return the tasks of all readings: some runs of one reading at one number of areas."""
    return [
        Task(
            f"reading “{reading.name}”, {most} areas, runs {first + 1} to {min(first + _RUNS_IN_A_CELL, runs)}",
            play_reading,
            (records, reading, most, range(first, min(first + _RUNS_IN_A_CELL, runs)), seed),
            # Bounded interests leave few rank sets, and few of them take long.
            weight=_RUNS_IN_A_CELL * (50.0 + records.types_of(most) * (1.0 if reading.interest is None else 0.2)),
        )
        for reading in READINGS
        for most in reading.areas
        if most in areas
        for first in range(0, runs, _RUNS_IN_A_CELL)
    ]


def tried(rows: pl.DataFrame) -> pl.DataFrame:
    """Return what came of each reading at each number of areas: means over the runs, and spreads of the losses.

    The medians and shares above 0.75 of an agent's ε are given for all agents and for the matched; the share also for
    all agents if those without a paper count as charged nothing.
    """
    why = {reading.name: reading.why for reading in READINGS}
    spread = pl.col("loss", "random").std().fill_null(0.0).name.suffix("_spread")
    means = pl.all().exclude("run", "matched").mean()
    return rows.group_by("reading", "areas", maintain_order=True).agg(means, spread, runs=pl.len()).with_columns(
        why=pl.col("reading").replace_strict(why)
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--papers", type=Path, help="papers: id and 0/1 areas; a synthetic conference unless given")
    parser.add_argument("--reviewers", type=Path, help="reviewers, in the same form")
    parser.add_argument("--areas", default="3,4,5", help="most areas of a possible reviewer")
    parser.add_argument("--runs", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("readings"))
    chosen = parser.parse_args()
    given = chosen.papers and chosen.reviewers
    records = papers_of_files(chosen.papers, chosen.reviewers) if given else papers_of_conference(seed=0)
    areas = [int(size) for size in chosen.areas.split(",")]
    settings = records.settings(runs=chosen.runs, seed=chosen.seed, version=palmatch.__version__)
    parts = tasks(records, runs=chosen.runs, seed=chosen.seed, areas=areas)
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_hide_dataframe_shape=True, fmt_str_lengths=80, tbl_width_chars=160):
        print(tried(run_tasks(chosen.out, parts, settings)))


if __name__ == "__main__":
    main()
