"""The paper's second test-case: reviewers and papers, with primary areas drawn afresh in every run.

A cell is one run at one number of areas; its rows, one for each method, become the numbers that the paper states. How
anything is drawn is the report's business.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Literal

import numpy as np
import polars as pl

from palmatch.data.conference import conference
from palmatch.data.labels import Labels, check_same_areas, read_labels
from palmatch.domains import papers
from palmatch.errors import InputError
from palmatch.methods import PreparedGame, Settings, Workspace, prepare, prepare_game
from palmatch.methods.assembly import PublishedAccounting, largest_costs
from palmatch.methods.centralised import optimal_welfare
from palmatch.methods.palma import published_policy
from palmatch.palma.policy import Policy
from palmatch.problem import FloatArray, Problem
from palmatch.rounds.draws import stream
from palmatch.studies import reproduced
from palmatch.studies.reproduced import Own, check_sizes, frame_of, random_loss, row_of
from palmatch.studies.tasks import DRAWN_SEED, Setting, Task

AREAS: Final = (3, 4, 5)
METHODS: Final = ("published", "unlimited", "noise", "random", "hungarian-region")


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """The areas of reviewers and papers; primary areas that are None are drawn afresh in every run."""

    source: str
    made_up: bool
    reviewers: Labels
    papers: Labels
    notes: tuple[str, ...]

    @property
    def areas(self) -> tuple[str, ...]:
        """The names of the areas."""
        return self.reviewers.areas

    @property
    def digest(self) -> str:
        """Tells these records from any others."""
        both = (self.reviewers, self.papers)
        ids = "\n".join((*self.reviewers.ids, "", *self.papers.ids)).encode()
        primaries = b"".join(b"-" if one.primary is None else one.primary.tobytes() for one in both)
        marks = b"".join(one.marks.tobytes() for one in both)
        return hashlib.sha256(marks + ids + primaries).hexdigest()[:16]


def from_files(paper_file: Path, reviewer_file: Path) -> Records:
    """Read both files and check that they have the same areas."""
    reviewers = read_labels(reviewer_file, role="agents")
    submitted = check_same_areas(reviewers, read_labels(paper_file, role="resources"))
    notes = []
    if reviewers.epsilon is not None:
        notes.append(f"The budgets in {reviewer_file.name} are passed over: the study gives every reviewer the same.")
    if reviewers.primary is None:
        notes.append(_drawn(reviewers.areas))
    for name, labels in ((reviewer_file.name, reviewers), (paper_file.name, submitted)):
        if labels.primary is not None:
            notes.append(f"The primary areas of {name} are the file's own, the same in every run.")
    # Every reviewer gets one paper, and has the same budget.
    reviewers, submitted = (replace(labels, epsilon=None, units=None) for labels in (reviewers, submitted))
    return Records(f"{paper_file.name} and {reviewer_file.name}", False, reviewers, submitted, tuple(notes))


def from_conference(*, seed: int, reviewers: int = 189, papers: int = 73) -> Records:
    """Draw a synthetic conference of the paper's size."""
    drawn = conference(seed=seed, reviewers=reviewers, papers=papers)
    note = "The conference, its areas, reviewers and papers are synthetic; only their numbers are the paper's."
    both = [replace(labels, ids=tuple(map(str, range(len(labels.marks))))) for labels in drawn.labels]
    return Records("the synthetic conference", True, both[0], both[1], (note, _drawn(drawn.areas)))


def _drawn(areas: tuple[str, ...]) -> str:
    """Say what the figures leave out where primary areas are drawn."""
    return (
        "Primary areas are drawn from each reviewer's own areas, as in the paper. Such a draw adds ln k to every ε "
        f"where there are k areas, here ln {len(areas)} = {np.log(len(areas)):.2f}; the figures leave it out, as in "
        "the paper."
    )


def tasks(records: Records, areas: Sequence[int], *, runs: int, seed: int) -> list[Task]:
    """Return the tasks of a study: one for each number of areas and run."""
    check_sizes(areas, runs, "numbers of areas")
    return [
        Task(f"{most} areas, run {run + 1}", play_run, (records, most, run, seed), 50.0 + types_of(records, most))
        for most in areas
        for run in range(runs)
    ]


def types_of(records: Records, areas: int) -> int:
    """Return how many possible reviewers a region has."""
    if not 1 <= areas <= len(records.areas):
        raise InputError(f"Expected from 1 to {len(records.areas)} areas, got {areas}.")
    return papers.types_of_region(areas, len(records.areas))


def settings_of(records: Records, *, runs: int, seed: int | None, version: str) -> dict[str, Setting]:
    """Return what the rows depend on besides the names of the tasks."""
    return {
        "study": "papers",
        "runs": runs,
        "seed": DRAWN_SEED if seed is None else seed,
        "palmatch": version,
        "labels": records.digest,
    }


def problem_of(
    records: Records,
    areas: int,
    seed: int | None,
    *,
    surplus: Literal["drop", "keep"] = "drop",
    interest: int | None = None,
) -> Problem:
    """Return the problem of one run: its seed draws the primary areas, the same for any number of areas."""
    both = (records.reviewers, records.papers)
    return papers.problem(*both, areas=areas, draw_primary=True, seed=seed, surplus=surplus, interest=interest)


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
    return Ready(policy, prepare_game(workspace, policy, PublishedAccounting(settings, costs)), costs)


def play_run(records: Records, areas: int, run: int, seed: int) -> pl.DataFrame:
    """Draw the primary areas of a run and play every method once; a row for each."""
    own = stream(seed, run)
    problem = problem_of(records, areas, own)
    workspace, best = Workspace(problem), optimal_welfare(problem)
    rows = []
    for method in METHODS:
        matching = prepare(workspace, method).play(own)
        rows.append(row_of(problem, matching, best, batch="", areas=areas, epsilon=Settings().epsilon, run=run))
    return frame_of(rows)


losses = partial(reproduced.losses, size="areas", methods=METHODS)
spendings = partial(reproduced.spendings, size="areas")


def own_numbers(rows: pl.DataFrame, records: Records) -> dict[str, Own]:
    """Return our numbers by the keys of the published ones, losses and shares in per cent, over all reviewers."""
    palma = sorted((x for x in losses(rows) if x.method == "published"), key=lambda loss: loss.mean)
    spent = spendings(rows)
    above = [100 * x.above(0.75) for x in spent]
    return {
        "least loss": Own(100 * palma[0].mean, 100 * palma[0].spread),
        "most loss": Own(100 * palma[-1].mean, 100 * palma[-1].spread),
        "loss random": random_loss(rows),
        "median epsilon": Own(float(np.mean([x.median for x in spent]))),
        "least above": Own(min(above)),
        "most above": Own(max(above)),
        "max epsilon": Own(max(x.largest for x in spent)),
        "reviewers": Own(len(records.reviewers.ids)),
        "papers": Own(len(records.papers.ids)),
    }
