"""palmatch reproduce: the paper's two test-cases, played again, with every published number beside ours."""

from __future__ import annotations

import shlex
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import Annotated, Any, TypeAlias

import polars as pl
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

import palmatch
from palmatch.cli import options, show
from palmatch.cli.memory import check_areas
from palmatch.cli.outputs import check_outputs
from palmatch.cluster.connection import perhaps_connected
from palmatch.errors import InputError
from palmatch.report.mobility_page import write_mobility
from palmatch.report.papers_page import write_papers
from palmatch.report.reproduction import Told, number_line
from palmatch.studies import cells, paper_readings, reproduce_mobility, reproduce_papers
from palmatch.studies.published_numbers import MOBILITY, PAPERS, Beside, beside
from palmatch.studies.reproduced import loss_rows

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

# As many runs as two processors play in about two minutes.
_QUICK_MOBILITY, _QUICK_PAPERS = 8, 4

app = typer.Typer(name=NAME, help=HELP, no_args_is_help=True, add_completion=False, rich_markup_mode="markdown")

Runs: TypeAlias = Annotated[
    int | None, typer.Option("--runs", help="Runs of each method; the paper's 32 unless given.")
]
Quick: TypeAlias = Annotated[bool, typer.Option("--quick", help="Fewer runs: about two minutes on two processors.")]
Processes: TypeAlias = Annotated[
    int | None, typer.Option("--processes", help="Processes to use; one for each processor unless given.", min=1)
]

ClusterName: TypeAlias = Annotated[
    str | None, typer.Option("--cluster", help="A Dask scheduler's address, or local:N, in place of --processes.")
]


@app.command("mobility", help=MOBILITY_HELP, epilog=MOBILITY_EXAMPLES)
def mobility(
    trips: Annotated[
        Path | None, typer.Option("--trips", help="Taxi trips with coordinates (CSV, .gz, .zip, Parquet).")
    ] = None,
    at: Annotated[
        list[str] | None,
        typer.Option("--at", help='When a batch begins, as "2016-01-15 08:00:00"; more than once for more.'),
    ] = None,
    edges: Annotated[
        str, typer.Option("--edges", help="Edges of the square regions in metres, with commas.")
    ] = "1000,2000,3000,4000",
    seconds: Annotated[float, typer.Option("--seconds", help="How long a batch lasts.")] = 30.0,
    origin: options.Origin = options.ORIGIN,
    runs: Runs = None,
    quick: Quick = False,
    seed: options.SecretSeed = None,
    data_seed: options.DataSeed = 0,
    processes: Processes = None,
    cluster: ClusterName = None,
    out: Annotated[Path, typer.Option("--out", help="The folder for report.html.")] = Path("reproduce-mobility"),
    json: options.Json = None,
) -> None:
    """Play the first test-case."""
    check_outputs(trips, json=json)
    if trips is None and at:
        raise InputError(
            "--at goes with --trips FILE: batches of the synthetic city are at 05:00, 08:00, 11:00, 19:00."
        )
    records = (
        reproduce_mobility.from_city(seed=data_seed, seconds=seconds)
        if trips is None
        else reproduce_mobility.from_trips(trips, _moments(at), seconds=seconds)
    )
    records = replace(records, origin=options.place(origin))
    count = _runs(runs, quick, _QUICK_MOBILITY)
    sizes = options.numbers(edges, "--edges")
    own = cells.study_seed(out / "cells", seed)
    parts = reproduce_mobility.cells(records, edges=sizes, runs=count, seed=own)
    settings = reproduce_mobility.settings_of(records, runs=count, seed=seed, version=palmatch.__version__)
    rows = _play(out, parts, settings, processes, cluster)
    words = [*(["--trips", str(trips)] if trips else []), *(word for time in at or [] for word in ("--at", time))]
    words += ["--edges", ",".join(f"{size:g}" for size in sizes), "--seconds", f"{seconds:g}"]
    words += ["--data-seed", str(data_seed)] if trips is None and data_seed else []
    words += [f"--origin={origin}"] if origin != options.ORIGIN else []
    told = _told("mobility", words, runs=count, seed=seed)
    numbers = beside(MOBILITY, reproduce_mobility.own_numbers(rows, records))
    page = _write(out, rows, lambda: write_mobility(out, records, rows, told)[0])
    losses = loss_rows(reproduce_mobility.losses(rows), "edge")
    title = f"Mobility, on {records.source}"
    _tell(title, numbers, losses, told, page=page, json=json, made_up=records.made_up, warnings=records.warnings)


@app.command("papers", help=PAPERS_HELP, epilog=PAPERS_EXAMPLES)
def papers(
    papers: Annotated[Path | None, typer.Option("--papers", help="Papers: id and 0/1 areas (CSV or Parquet).")] = None,
    reviewers: Annotated[Path | None, typer.Option("--reviewers", help="Reviewers, in the same form.")] = None,
    areas: Annotated[str, typer.Option("--areas", help="Most areas of a possible reviewer, with commas.")] = "3,4,5",
    readings: Annotated[
        bool, typer.Option("--readings", help="Try also what else the paper may have meant, one reading at a time.")
    ] = False,
    runs: Runs = None,
    quick: Quick = False,
    seed: options.SecretSeed = None,
    data_seed: options.DataSeed = 0,
    processes: Processes = None,
    cluster: ClusterName = None,
    out: Annotated[Path, typer.Option("--out", help="The folder for report.html.")] = Path("reproduce-papers"),
    json: options.Json = None,
) -> None:
    """Play the second test-case."""
    check_outputs(papers, reviewers, json=json)
    records = _conference(papers, reviewers, data_seed)
    count = _runs(runs, quick, _QUICK_PAPERS)
    sizes = options.whole_numbers(areas, "--areas")
    for size in sizes:
        check_areas(size, named=len(records.areas), agents=len(records.reviewers), papers=len(records.papers))
    own = cells.study_seed(out / "cells", seed)
    parts = reproduce_papers.cells(records, areas=sizes, runs=count, seed=own)
    settings = reproduce_papers.settings_of(records, runs=count, seed=seed, version=palmatch.__version__)
    rows = _play(out, parts, settings, processes, cluster)
    others = None
    if readings:
        tries = paper_readings.cells(records, runs=count, seed=own, areas=sizes)
        others = _play(out, tries, settings, processes, cluster)
    words = [*(["--papers", str(papers), "--reviewers", str(reviewers)] if papers else [])]
    words += ["--data-seed", str(data_seed)] if papers is None and data_seed else []
    words += ["--areas", ",".join(map(str, sizes)), *(["--readings"] if readings else [])]
    told = _told("papers", words, runs=count, seed=seed)
    numbers = beside(PAPERS, reproduce_papers.own_numbers(rows, records))
    page = _write(out, rows, lambda: write_papers(out, records, rows, told, readings=others)[0])
    losses = loss_rows(reproduce_papers.losses(rows), "areas")
    _tell(
        f"Paper assignment, on {records.source}", numbers, losses, told, page=page, json=json, made_up=records.made_up
    )


def _moments(texts: Sequence[str] | None) -> list[datetime] | None:
    return [options.moment(text) for text in texts or []] or None


def _conference(papers: Path | None, reviewers: Path | None, seed: int) -> reproduce_papers.Records:
    if papers is None and reviewers is None:
        return reproduce_papers.from_conference(seed=seed)
    if papers is None or reviewers is None:
        raise InputError("--papers and --reviewers go together: give both, or neither for a synthetic conference.")
    return reproduce_papers.from_files(papers, reviewers)


def _runs(given: int | None, quick: bool, few: int) -> int:
    return given if given is not None else few if quick else 32


def _told(study: str, words: Sequence[str], *, runs: int, seed: int | None) -> Told:
    command = ["palmatch", "reproduce", study, *words, "--runs", str(runs)]
    command += [] if seed is None else ["--seed", str(seed)]
    return Told(runs=runs, seed=seed, command=shlex.join(command), version=palmatch.__version__)


def _play(
    out: Path,
    parts: Sequence[cells.Cell],
    settings: dict[str, cells.Setting],
    processes: int | None,
    cluster: str | None,
) -> pl.DataFrame:
    try:
        with perhaps_connected(cluster) as there, _progress() as watch:
            return cells.run_cells(out / "cells", parts, settings, processes=processes, cluster=there, watch=watch)
    except KeyboardInterrupt:
        typer.echo(f"Stopped. What was done is in {out / 'cells'}; the same command goes on from there.", err=True)
        # Said already: the command adds its own line to an interrupt that nothing has answered.
        raise typer.Exit(130) from None


@contextmanager
def _progress() -> Iterator[cells.Watch]:
    """Show what is running, how far it is and how long it will take; silent where the standard error is no terminal."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[count]}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    task, start = bar.add_task("", total=None, count="", left=""), monotonic()

    def watch(progress: cells.Progress) -> None:
        bar.update(
            task,
            description=textwrap.shorten("; ".join(progress.running), 60, placeholder=" ..."),
            completed=progress.weight_done,
            total=progress.weight,
            count=f"{progress.cells_done + progress.found}/{progress.cells + progress.found}",
            left=time_left(monotonic() - start, progress),
        )

    with bar:
        yield watch


def time_left(elapsed: float, progress: cells.Progress) -> str:
    """Say about how long it will take, once something is done."""
    if not progress.weight_done:
        return ""
    seconds = round(elapsed * (progress.weight - progress.weight_done) / progress.weight_done)
    return f"about {seconds // 60}:{seconds % 60:02d} left"


def _write(out: Path, rows: pl.DataFrame, write_page: Any) -> Path:
    cells.write_rows(out / "results.parquet", rows)
    page: Path = write_page()
    return page


def _tell(
    title: str,
    numbers: Sequence[Beside],
    losses: Sequence[dict[str, object]],
    told: Told,
    *,
    page: Path,
    json: Path | None,
    made_up: bool,
    warnings: Sequence[str] = (),
) -> None:
    if str(json) != "-":
        show.say(f"{title}: {show.counted(told.runs, 'run')}")
        show.say_seeded(told.seed)
        lines = [number_line(number) for number in numbers if number.own is not None]
        rows = [(line.what, line.published, line.own, line.deviations) for line in lines]
        show.show_table(("what", "the paper", "ours", "σ"), rows, wrap=True)
        show.say("The last column is the difference in published standard deviations.")
        show.say(f"{show.FROM_THE_TRUTH}{' Here they may be: the records are synthetic.' if made_up else ''}")
        for warning in warnings:
            show.say(f"Warning: {warning}")
        show.say(f"Open {page} for the figures and for what differs from the paper.")
    show.write_json(json, figures(numbers, losses, told) | {"warnings": list(warnings)})


def figures(numbers: Sequence[Beside], losses: Sequence[dict[str, object]], told: Told) -> dict[str, Any]:
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
