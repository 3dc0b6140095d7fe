"""palmatch reproduce: the paper's two test-cases, played again, with every published number beside ours."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import polars as pl

import palmatch
from palmatch.cli import options, show
from palmatch.cli.inputs import check_areas
from palmatch.cluster import connected
from palmatch.errors import InputError
from palmatch.report.reproduction import Provenance, number_line, write_mobility, write_papers
from palmatch.studies import tasks
from palmatch.studies.reproduce import (
    Beside,
    MobilityRecords,
    PapersRecords,
    beside,
    loss_rows,
    mobility_of_city,
    mobility_of_trips,
    papers_of_conference,
    papers_of_files,
)

HELP = "Play the paper's test-cases again: its figures and numbers beside ours, on one page."


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOptions:
    """How much of a study is played, by what, and where its numbers go.

    Attributes
    ----------
    runs:
        Runs of each method; the paper's 32 unless given.
    quick:
        Fewer runs: about two minutes on two processors.
    processes:
        Processes to use; one for each processor unless given.
    cluster:
        A Dask scheduler's address, or local:N, in place of --processes.
    """

    PANEL: ClassVar = None
    runs: int | None = None
    quick: bool = False
    seed: options.MaybeNatural = None
    data_seed: options.Natural = 0
    processes: options.MaybePositive = None
    cluster: str | None = None
    json: Path | None = None


def mobility(
    *,
    trips: Path | None = None,
    at: options.Names = None,
    edges: str = "1000,2000,3000,4000",
    seconds: float = 30.0,
    origin: options.Origin = None,
    out: Path = Path("reproduce-mobility"),
    chosen: StudyOptions,
) -> None:
    """Agents and vehicles: four half minutes of taxi trips, regions of 1 to 4 km.

    Parameters
    ----------
    at:
        When a batch begins, as "2016-01-15 08:00:00"; more than once for more.
    edges:
        Edges of the square regions in metres, with commas.
    seconds:
        How long a batch lasts.
    out:
        The folder for report.html.

    Examples
    --------
    Example: palmatch reproduce mobility --trips yellow_tripdata_2016-01.csv --out mobility

    Example: palmatch reproduce mobility --trips trips.csv --at "2016-01-29 09:19:00" --quick --out quick

    Without --trips it is played on a synthetic city. A study that was stopped goes on with the same command.
    """
    show.check_outputs([trips], json=chosen.json)
    if trips is None and at:
        raise InputError(
            "--at goes with --trips FILE: batches of the synthetic city are at 05:00, 08:00, 11:00, 19:00."
        )
    if trips is None:
        records = mobility_of_city(seed=chosen.data_seed, seconds=seconds)
    else:
        records = mobility_of_trips(trips, list(map(options.moment, at or [])) or None, seconds=seconds)
    if origin is not None:
        records = replace(records, origin=options.place(origin))
    sizes = options.numbers(edges, "--edges")
    words = [*(["--trips", str(trips)] if trips else []), *(word for time in at or [] for word in ("--at", time))]
    words += ["--edges", ",".join(f"{size:g}" for size in sizes), "--seconds", f"{seconds:g}"]
    words += ["--data-seed", str(chosen.data_seed)] if trips is None and chosen.data_seed else []
    words += [f"--origin={origin}"] if origin is not None else []
    _reproduce("mobility", records, sizes, words, out, chosen)


def papers(
    *,
    papers: Path | None = None,
    reviewers: Path | None = None,
    areas: str = "3,4,5",
    out: Path = Path("reproduce-papers"),
    chosen: StudyOptions,
) -> None:
    """Reviewers and papers: regions of 3, 4 and 5 areas.

    Parameters
    ----------
    papers:
        Papers: id and 0/1 areas (CSV or Parquet).
    reviewers:
        Reviewers, in the same form.
    out:
        The folder for report.html.

    Examples
    --------
    Example: palmatch reproduce papers --papers papers.csv --reviewers reviewers.csv --out papers

    Without files it is played on a synthetic conference. A study that was stopped goes on with the same command.
    """
    show.check_outputs([papers, reviewers], json=chosen.json)
    if papers is None and reviewers is None:
        records = papers_of_conference(seed=chosen.data_seed)
    elif papers is None or reviewers is None:
        raise InputError("--papers and --reviewers go together: give both, or neither for a synthetic conference.")
    else:
        records = papers_of_files(papers, reviewers)
    sizes = options.whole_numbers(areas, "--areas")
    for size in sizes:
        check_areas(size, named=len(records.areas), papers=len(records.papers.ids))
    words = ["--papers", str(papers), "--reviewers", str(reviewers)] if papers else []
    words += ["--data-seed", str(chosen.data_seed)] if papers is None and chosen.data_seed else []
    words += ["--areas", ",".join(map(str, sizes))]
    _reproduce("papers", records, sizes, words, out, chosen)


SUBCOMMANDS = {"mobility": mobility, "papers": papers}


def _reproduce(
    study: str,
    records: MobilityRecords | PapersRecords,
    sizes: Sequence[Any],
    words: Sequence[str],
    out: Path,
    chosen: StudyOptions,
) -> None:
    """Play a test-case, write its page, and tell its numbers beside the paper's."""
    # As many runs as two processors play in about two minutes, or those of the paper.
    usual = {"mobility": 8, "papers": 4}[study] if chosen.quick else 32
    seed, runs = chosen.seed, usual if chosen.runs is None else chosen.runs
    settings = records.settings(runs=runs, seed=seed, version=palmatch.__version__)
    rows = _play(out, settings, chosen, records.tasks(sizes, runs=runs, seed=tasks.study_seed(out / "cells", seed)))
    tasks.write_rows(out / "results.parquet", rows)
    command = ["palmatch", "reproduce", study, *words, "--runs", str(runs)]
    command += [] if seed is None else ["--seed", str(seed)]
    told = Provenance(runs=runs, seed=seed, command=shlex.join(command), version=palmatch.__version__)
    if isinstance(records, MobilityRecords):
        page = write_mobility(out, records, rows, told)[0]
    else:
        page = write_papers(out, records, rows, told)[0]
    numbers = beside(records.PUBLISHED, records.own_numbers(rows))
    if show.write_json(chosen.json, figures(numbers, loss_rows(rows), told) | {"warnings": records.warnings}):
        title = {"mobility": "Mobility", "papers": "Paper assignment"}[study]
        show.say(f"{title}, on {records.source}: {show.counted(runs, 'run')}")
        show.say_seeded(seed)
        lines = [number_line(number) for number in numbers if number.own is not None]
        table = [(line.what, line.published, line.own, line.deviations) for line in lines]
        show.show_table(("what", "the paper", "ours", "σ"), table)
        show.say("The last column is the difference in published standard deviations.")
        show.say(f"{show.FROM_THE_TRUTH}{' Here they may be: the records are synthetic.' if records.made_up else ''}")
        for warning in records.warnings:
            show.say(f"Warning: {warning}")
        show.say(f"Open {page} for the figures and for what differs from the paper.")


def _play(
    out: Path, settings: dict[str, tasks.Setting], chosen: StudyOptions, parts: Sequence[tasks.Task]
) -> pl.DataFrame:
    try:
        own = nullcontext() if chosen.cluster is None else connected(chosen.cluster)
        with own as executor, show.progress_bar("reproduce") as progress:
            return tasks.run_tasks(
                out / "cells",
                parts,
                settings,
                processes=chosen.processes,
                executor=executor,
                progress=lambda *done: progress("cells", *done),
            )
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"What was done is in {out / 'cells'}; the same command goes on from there.") from None


def figures(numbers: Sequence[Beside], losses: Sequence[dict[str, object]], told: Provenance) -> dict[str, Any]:
    """Return the numbers as plain data, for JSON; what is missing is null."""
    return {
        "command": told.command,
        "runs": told.runs,
        "seed": told.seed,
        "not_to_be_published": ["numbers", "rows", "seed"],
        "numbers": [
            {
                **show.pick(number.published, "what place unit"),
                "published": number.published.value,
                "published_sd": number.published.spread,
                "ours": None if number.own is None else number.own.value,
                "ours_sd": None if number.own is None else number.own.spread,
                "difference": number.difference,
                "difference_in_published_sd": number.deviations,
            }
            for number in numbers
        ],
        "rows": list(losses),
    }
