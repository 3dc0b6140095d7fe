"""palmatch bench: the command that a user runs, measured from file to file beside other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from palmatch.cli import options, show
from palmatch.cli.options import option
from palmatch.cli.outputs import check_outputs
from palmatch.errors import InputError
from palmatch.studies import bench

HELP = "Measure `palmatch match` from file to file, or a live game with many devices: time, memory, welfare."
EXAMPLES = (
    "Example: palmatch bench --files --sizes 10000,1000000 --threads 1,2 --flow 1000000 --dense 5000\n\n"
    "Example: palmatch bench --live --agents 10000 --transport hub,mqtt --protocol report,bids"
)


def command(
    files: Annotated[bool, typer.Option("--files/--no-files", help="Measure methods from file to file.")] = True,
    sizes: Annotated[str, typer.Option(help="Numbers of agents, with commas.")] = "10000,100000",
    methods: Annotated[str, typer.Option(help="Methods to measure, with commas.")] = "once,palma,published",
    threads: Annotated[str, typer.Option(help="Numbers of threads, with commas.")] = "1",
    flow: Annotated[int, typer.Option(help="Agents for OR-tools' min-cost flow beside `once`; 0 for none.")] = 0,
    dense: Annotated[int, typer.Option(help="Agents for scipy's assignment beside `once`; 0 for none.")] = 0,
    live: Annotated[bool, option("--live", "Measure live games instead; needs palmatch[live].")] = False,
    agents: Annotated[int, typer.Option(help="Devices of a live game, each with a connection.", min=2)] = 10_000,
    transport: Annotated[str, typer.Option(help="Transports of live games: hub, mqtt, with commas.")] = "hub,mqtt",
    protocol: Annotated[str, typer.Option(help="Protocols of live games: report, bids, with commas.")] = "report",
    seconds: Annotated[float, typer.Option(help="The time from opening to result of a live game.", min=5)] = 30.0,
    data_seed: options.DataSeed = 0,
    json: options.Json = None,
) -> None:
    """Measure."""
    check_outputs(json=json)
    if live:
        _live(protocol, transport, agents, seconds, data_seed, json)
        return
    names = options.methods(methods) if files else []
    with show.progress_bar("measuring") as progress:
        figures = bench.measured(
            methods=names,
            sizes=options.whole_numbers(sizes, "--sizes") if files else [],
            threads=options.whole_numbers(threads, "--threads"),
            flow=flow,
            dense=dense,
            seed=data_seed,
            progress=progress,
        )
    if show.write_json(json, figures.content):
        _show(figures)


def _show(figures: bench.Figures) -> None:
    names, lines = ("program", "agents", "thr.", "CPU s", "wall s", "units", "GB", "welfare"), []
    for run in figures.runs:
        units = figures.units(run)
        lines.append(
            (
                run.program,
                f"{run.agents:,}",
                str(run.threads),
                *(f"{value:.3g}" if value < 100 else f"{value:,.0f}" for value in (run.processor, run.wall)),
                "-" if units is None else f"{units:.2f}",
                f"{run.gigabytes:.2f}",
                "-" if run.welfare is None else f"{run.welfare:.4f}",
            )
        )
    show.show_table(names, lines)
    for line in _ratios(figures):
        show.say(line)
    show.say(
        "CPU s: processor time of the whole process, Parquet in, Parquet out, starting included; for other programs of "
        f"the solver's call alone. Units: queries of a k-d tree for every agent's {bench.INTEREST} nearest. Synthetic "
        f"crowds of 100 agents and 100 vehicles on a square kilometre, squares of {bench.EDGE} m, ε = 1. Welfare is "
        "the mean true utility of an agent."
    )


def _ratios(figures: bench.Figures) -> list[str]:
    lines = []
    for program in dict.fromkeys(run.program for run in figures.runs):
        for threads in sorted({run.threads for run in figures.runs}):
            growth = figures.growth(program, threads)
            if growth is not None:
                lines.append(f"{program}, {show.counted(threads, 'thread')}: time an agent grows {growth:.2f} times.")
        for size in sorted({run.agents for run in figures.runs}):
            gain = figures.second_thread(program, size)
            if gain is not None:
                lines.append(f"{program}, {size:,} agents: two threads are {gain:.2f} times as fast as one (wall).")
    for ours, other in (("once", bench.FLOW), (bench.DENSE, bench.ASSIGNMENT)):
        for run in figures.runs:
            mine = figures.find(ours, run.agents, run.threads)
            if run.program == other and mine is not None:
                lines.append(
                    f"{ours}, {run.agents:,} agents: {mine.processor / run.processor:.3g} times the time of {other}."
                )
    return lines


def _live(protocol: str, transport: str, agents: int, seconds: float, seed: int, json: Path | None) -> None:
    from palmatch.cli.live import need_extra

    need_extra()
    from palmatch.cli.bench_live import tell
    from palmatch.studies.bench_live import measured

    protocols = _chosen(protocol, ("report", "bids"), "--protocol")
    transports = _chosen(transport, ("hub", "mqtt"), "--transport")
    with show.progress_bar("live") as progress:
        runs = [
            measured(one, over, agents=agents, seconds=seconds, seed=seed, progress=progress)
            for one in protocols
            for over in transports
        ]
    if show.write_json(json, {"runs": [run.content for run in runs], "not_to_be_published": []}):
        tell(runs)


def _chosen(text: str, known: tuple[str, ...], option: str) -> list[Any]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise InputError(f"Expected {' or '.join(known)} for {option}, with commas, got {name!r}.")
    return names
