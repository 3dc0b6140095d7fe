"""palmatch reproduce: the paper's two test-cases, played again, with every published number beside ours."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import polars as pl
import typer

import palmatch
from palmatch.cli import options, show
from palmatch.cli.inputs import check_areas
from palmatch.cli.options import option
from palmatch.cli.show import check_outputs
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

NAME = "reproduce"
HELP = "Play the paper's test-cases again: its figures and numbers beside ours, on one page."
MOBILITY_HELP = "Agents and vehicles: four half minutes of taxi trips, regions of 1 to 4 km."
PAPERS_HELP = "Reviewers and papers: regions of 3, 4 and 5 areas."
MOBILITY_EXAMPLES = (
    "Example: palmatch reproduce mobility --trips yellow_tripdata_2016-01.csv --out mobility\n\n"
    'Example: palmatch reproduce mobility --trips trips.csv --at "2016-01-29 09:19:00" --quick --out quick\n\n'
    "Without --trips it is played on a synthetic city. A study that was stopped goes on with the same command."
)
PAPERS_EXAMPLES = (
    "Example: palmatch reproduce papers --papers papers.csv --reviewers reviewers.csv --out papers\n\n"
    "Without files it is played on a synthetic conference. A study that was stopped goes on with the same command."
)

app = typer.Typer(
    name=NAME,
    help=HELP,
    epilog="Example: palmatch reproduce mobility --quick --out mobility",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOptions:
    """How much of a study is played, by what, and where its numbers go."""

    runs: Annotated[int | None, option("--runs", "Runs of each method; the paper's 32 unless given.")] = None
    quick: Annotated[bool, option("--quick", "Fewer runs: about two minutes on two processors.")] = False
    seed: options.SecretSeed = None
    data_seed: options.DataSeed = 0
    processes: Annotated[
        int | None, option("--processes", "Processes to use; one for each processor unless given.", min=1)
    ] = None
    cluster: Annotated[
        str | None, option("--cluster", "A Dask scheduler's address, or local:N, in place of --processes.")
    ] = None
    json: options.Json = None


class _Study(NamedTuple):
    """A test-case: its names, and a few runs."""

    name: str
    title: str
    few: int


# As many runs as two processors play in about two minutes.
_MOBILITY = _Study("mobility", "Mobility", 8)
_PAPERS = _Study("papers", "Paper assignment", 4)


@app.command("mobility", help=MOBILITY_HELP, epilog=MOBILITY_EXAMPLES)
@options.sharing
def mobility(
    *,
    trips: options.Trips = None,
    at: Annotated[
        list[str] | None, option("--at", 'When a batch begins, as "2016-01-15 08:00:00"; more than once for more.')
    ] = None,
    edges: Annotated[
        str, option("--edges", "Edges of the square regions in metres, with commas.")
    ] = "1000,2000,3000,4000",
    seconds: Annotated[float, option("--seconds", "How long a batch lasts.")] = 30.0,
    origin: options.Origin = options.ORIGIN,
    out: Annotated[Path, option("--out", "The folder for report.html.")] = Path("reproduce-mobility"),
    chosen: StudyOptions,
) -> None:
    """Play the first test-case."""
    check_outputs(trips, json=chosen.json)
    if trips is None and at:
        raise InputError(
            "--at goes with --trips FILE: batches of the synthetic city are at 05:00, 08:00, 11:00, 19:00."
        )
    if trips is None:
        records = mobility_of_city(seed=chosen.data_seed, seconds=seconds)
    else:
        records = mobility_of_trips(trips, list(map(options.moment, at or [])) or None, seconds=seconds)
    records, sizes = replace(records, origin=options.place(origin)), options.numbers(edges, "--edges")
    words = [*(["--trips", str(trips)] if trips else []), *(word for time in at or [] for word in ("--at", time))]
    words += ["--edges", ",".join(f"{size:g}" for size in sizes), "--seconds", f"{seconds:g}"]
    words += ["--data-seed", str(chosen.data_seed)] if trips is None and chosen.data_seed else []
    words += [f"--origin={origin}"] if origin != options.ORIGIN else []
    _reproduce(_MOBILITY, records, sizes, words, out, chosen, partial(write_mobility, out, records))


@app.command("papers", help=PAPERS_HELP, epilog=PAPERS_EXAMPLES)
@options.sharing
def papers(
    *,
    papers: Annotated[Path | None, option("--papers", "Papers: id and 0/1 areas (CSV or Parquet).")] = None,
    reviewers: Annotated[Path | None, option("--reviewers", "Reviewers, in the same form.")] = None,
    areas: Annotated[str, option("--areas", "Most areas of a possible reviewer, with commas.")] = "3,4,5",
    out: Annotated[Path, option("--out", "The folder for report.html.")] = Path("reproduce-papers"),
    chosen: StudyOptions,
) -> None:
    """Play the second test-case."""
    check_outputs(papers, reviewers, json=chosen.json)
    records = _conference(papers, reviewers, chosen.data_seed)
    sizes = options.whole_numbers(areas, "--areas")
    for size in sizes:
        check_areas(size, named=len(records.areas), papers=len(records.papers.ids))
    words = ["--papers", str(papers), "--reviewers", str(reviewers)] if papers else []
    words += ["--data-seed", str(chosen.data_seed)] if papers is None and chosen.data_seed else []
    words += ["--areas", ",".join(map(str, sizes))]
    _reproduce(_PAPERS, records, sizes, words, out, chosen, partial(write_papers, out, records))


def _reproduce(
    study: _Study,
    records: MobilityRecords | PapersRecords,
    sizes: Sequence[Any],
    words: Sequence[str],
    out: Path,
    chosen: StudyOptions,
    write_page: Callable[[pl.DataFrame, Provenance], list[Path]],
) -> None:
    """Play a test-case, write its page, and tell its numbers beside the paper's."""
    runs, seed = chosen.runs if chosen.runs is not None else study.few if chosen.quick else 32, chosen.seed
    settings = records.settings(runs=runs, seed=seed, version=palmatch.__version__)
    parts = records.tasks(sizes, runs=runs, seed=tasks.study_seed(out / "cells", seed))
    rows = _play(out, settings, chosen, parts)
    tasks.write_rows(out / "results.parquet", rows)
    command = ["palmatch", "reproduce", study.name, *words, "--runs", str(runs)]
    command += [] if seed is None else ["--seed", str(seed)]
    told = Provenance(runs=runs, seed=seed, command=shlex.join(command), version=palmatch.__version__)
    page = write_page(rows, told)[0]
    numbers = beside(records.PUBLISHED, records.own_numbers(rows))
    if show.write_json(chosen.json, figures(numbers, loss_rows(rows), told) | {"warnings": records.warnings}):
        show.say(f"{study.title}, on {records.source}: {show.counted(runs, 'run')}")
        show.say_seeded(seed)
        lines = [number_line(number) for number in numbers if number.own is not None]
        table = [(line.what, line.published, line.own, line.deviations) for line in lines]
        show.show_table(("what", "the paper", "ours", "σ"), table)
        show.say("The last column is the difference in published standard deviations.")
        show.say(f"{show.FROM_THE_TRUTH}{' Here they may be: the records are synthetic.' if records.made_up else ''}")
        for warning in records.warnings:
            show.say(f"Warning: {warning}")
        show.say(f"Open {page} for the figures and for what differs from the paper.")


def _conference(papers: Path | None, reviewers: Path | None, seed: int) -> PapersRecords:
    if papers is None and reviewers is None:
        return papers_of_conference(seed=seed)
    if papers is None or reviewers is None:
        raise InputError("--papers and --reviewers go together: give both, or neither for a synthetic conference.")
    return papers_of_files(papers, reviewers)


def _play(
    out: Path, settings: dict[str, tasks.Setting], chosen: StudyOptions, parts: Sequence[tasks.Task]
) -> pl.DataFrame:
    try:
        own = nullcontext() if chosen.cluster is None else connected(chosen.cluster)
        with own as executor, show.progress_bar(NAME) as progress:
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
                "what": number.published.what,
                "place": number.published.place,
                "unit": number.published.unit,
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
