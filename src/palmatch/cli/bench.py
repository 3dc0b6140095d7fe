"""palmatch bench: how fast, how large and how good, beside others, in one run."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from palmatch.cli import options, show
from palmatch.cli.outputs import folder_for
from palmatch.errors import InputError
from palmatch.report.bench_figures import growth
from palmatch.report.figures import save
from palmatch.rounds.threads import usual_threads
from palmatch.studies import bench

NAME = "bench"
HELP = "Measure PALMA's rounds beside a k-d tree: times, with the welfare reached in them."
EXAMPLES = "Example: palmatch bench --largest 1000000 --out bench"

_MOST = 10**8


def command(
    largest: Annotated[
        int, typer.Option(help="The largest crowd to be measured, from 1,000 on in steps of ten times.")
    ] = 100_000,
    whole: Annotated[int, typer.Option(help="People beside a k-d tree; 0 for nobody.")] = 100_000,
    seed: options.Seed = 0,
    out: Annotated[Path | None, typer.Option(help="A folder for the figure and the numbers.")] = None,
    json: options.Json = None,
) -> None:
    """Measure."""
    _check(largest=largest, whole=whole)
    if out is not None:
        folder_for(out)
    with show.progress_bar("measuring") as report:
        lines = bench.whole(whole, seed=seed, report=report) if whole else []
        sizes = bench.sizes(largest, seed=seed, report=report)
    content = {
        "threads": usual_threads(),
        "lines": [asdict(line) for line in lines],
        "sizes": [asdict(size) | {"seconds": size.seconds} for size in sizes],
    }
    if str(json) != "-":
        _show(lines, sizes)
    show.write_json(json, content)
    if out is not None:
        save(growth(sizes), out / "growth.png")
        show.write_json(out / "bench.json", content)
        if str(json) != "-":
            show.say(f"Written: {out / 'growth.png'}, {out / 'bench.json'}")


def _check(**numbers: int) -> None:
    for name, value in numbers.items():
        least = 1000 if name == "largest" else 50
        if not least <= value <= _MOST and (value != 0 or name == "largest"):
            raise InputError(f"Expected --{name} from {least:,} to {_MOST:,}, got {value:,}.")


def _show(lines: list[bench.Line], sizes: list[bench.Size]) -> None:
    if lines:
        table = _table("instance", "agents", "method", "seconds", "welfare", "times ours")
        for line in lines:
            welfare = "-" if line.welfare != line.welfare else f"{line.welfare:.3f}"
            table.add_row(
                line.case, f"{line.agents:,}", line.method, _seconds(line.seconds), welfare, f"{line.ratio:,.4g}"
            )
        show.out().print(table)
        show.say("Welfare is a share of the best on the instance; for a whole crowd, of one for everybody.")
    table = _table("agents", "µs/agent", "sets", "tables", "rounds", "steps", "actions/agent", "GB")
    for size in sizes:
        table.add_row(
            f"{size.agents:,}",
            *(f"{1e6 * part / size.agents:.2f}" for part in (size.seconds, size.sets, size.tables, size.rounds)),
            f"{size.steps:,}",
            f"{size.actions / size.agents:.2f}",
            f"{size.bytes / 1e9:.2f}",
        )
    show.out().print(table)
    show.say(
        f"PALMA whole on {show.counted(usual_threads(), 'thread')}: squares of 1000 m, 20 interests, 100 people and "
        f"vehicles on a square kilometre, {bench.ACTIONS} truthful looks each; without reading and without the costs "
        "of a budget."
    )


def _table(*names: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for place, name in enumerate(names):
        table.add_column(name, justify="left" if place == 0 or name == "method" else "right", no_wrap=True)
    return table


def _seconds(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"
