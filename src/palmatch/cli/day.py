"""palmatch day: all batches of a day in a row, with vehicles that move, agents that wait, and budgets for the day.

What may be published is written to the folder itself; what is computed from true places, or holds them, to a folder of
its own inside, which says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from palmatch.atomic import make_folder, write_atomic
from palmatch.cli import options, show
from palmatch.cli.options import option
from palmatch.cli.show import check_outputs
from palmatch.errors import InputError
from palmatch.report.day_figures import day_figure, true_figure
from palmatch.report.style import save_both
from palmatch.studies.day import (
    DAY,
    PRIVATE_FOLDER,
    Area,
    DayTrips,
    Plan,
    Played,
    check,
    guarantee,
    play_day,
    spread,
    summary,
    trips_of_city,
    trips_of_file,
    true_figures,
)
from palmatch.studies.tasks import Setting, write_rows

NAME = "day"
HELP = "Play a whole day of taxi requests: vehicles move, agents wait, each has one budget for the day."
EXAMPLES = (
    "Example: palmatch day --trips yellow_tripdata_2016-01.csv --date 2016-01-15 --out day\n\n"
    "Example: palmatch day --start 08:00 --end 08:30 --out morning\n\n"
    "Without --trips it is a day of a synthetic city. The folder "
    f"{PRIVATE_FOLDER} inside of --out holds true places and figures computed from them: never publish it."
)

# So many times the trips that are under way at once are needed, since vehicles also drive back to where they began.
_SPARE = 1.1

_README: Final = (
    "NOT TO BE PUBLISHED\n\n"
    "This folder holds figures computed from the true places of the agents (welfare, loss, when an agent was truly\n"
    "picked up), and the stored reports. The guarantee in ../summary.json does not cover any of it.\n"
    "What may be published is in the folder above: day.parquet, agents.parquet, summary.json, day.png, day.svg.\n"
)


def command(
    trips: options.Trips = None,
    date: Annotated[str | None, option("--date", "The day, as 2016-01-15; the file's first unless given.")] = None,
    out: Annotated[Path, option("--out", "The folder for the results.")] = Path("day"),
    method: Annotated[str, typer.Option("--method", "--policy", help="The method of every batch.")] = "once",
    batch: Annotated[float, option("--batch", "Seconds of a batch.")] = 30.0,
    edge: options.Edge = 1000.0,
    epsilon: Annotated[float, option("--epsilon", "What an agent spends on its report.")] = 1.0,
    budget: Annotated[float, option("--budget-per-day", "What an agent may spend in the day; then ε = 0.")] = 1.0,
    vehicles: Annotated[
        int | None, option("--vehicles", "How many; 1.1 times the trips that are under way at once unless given.")
    ] = None,
    patience: Annotated[float, option("--patience", "Minutes after which an agent gives up.")] = 10.0,
    speed: Annotated[float, option("--speed", "Kilometres an hour along the streets.")] = 18.0,
    interest: Annotated[int, option("--interest", "Nearest vehicles that each possible type considers.")] = 20,
    start: Annotated[str, option("--start", "Time of the first batch, as 08:00.")] = "00:00",
    end: Annotated[str, option("--end", "Time at which the last batch ends, as 24:00.")] = "24:00",
    seed: options.SecretSeed = None,
    json: options.Json = None,
) -> None:
    """Play a day."""
    first, last = seconds_of(start, "--start"), seconds_of(end, "--end")
    plan = Plan(
        vehicles=vehicles if vehicles is not None else 1,
        method=method,
        batch_seconds=batch,
        edge=edge,
        epsilon=epsilon,
        budget=budget,
        patience=60 * patience,
        speed=speed / 3.6,
        interest=interest,
        start=first,
        end=last,
        seed=seed,
    )
    typed: dict[str, Setting] = {
        "batch": batch,
        "edge": edge,
        "epsilon": epsilon,
        "budget-per-day": budget,
        "patience": patience,
        "speed": speed,
        "interest": interest,
        "start": clock(first),
        "end": clock(last),
    }
    check_outputs(trips, json=json)
    check(plan, said=_said(typed | {"vehicles": plan.vehicles}))
    private = private_folder(out)
    records = _records(trips, date, plan)
    if vehicles is None:
        under_way = records.under_way(Area(plan.edge, records.made_up), speed=plan.speed)
        plan = replace(plan, vehicles=max(1, round(_SPARE * under_way)))
    with show.progress_bar("day") as progress:
        played = play_day(records, plan, private / "budgets.ledger", progress=lambda *done: progress("batches", *done))
    told, true = summary(records, plan, played), true_figures(played)
    try:
        write_tables(out, played, told, true)
        _draw(out, played, told, true)
    except OSError as error:
        raise InputError(f"{out}: cannot be written to ({error.strerror}); choose another --out.") from None
    if show.write_json(json, told):
        _print_summary(told, true, plan, out)


def seconds_of(text: str, option: str) -> float:
    """Return the seconds after midnight of a time such as 08:00 or 08:00:30; 24:00 is the end of the day."""
    parts = text.split(":")
    if not (2 <= len(parts) <= 3 and all(part.isascii() and part.isdigit() for part in parts)):
        raise InputError(f"Expected a time such as 08:00, got {option} {text!r}.")
    hours, minutes, seconds = (*map(int, parts), *([0] * (3 - len(parts))))
    total = hours * 3600 + minutes * 60 + seconds
    if minutes > 59 or seconds > 59 or total > DAY:
        raise InputError(f"Expected a time from 00:00 to 24:00, got {option} {text!r}.")
    return float(total)


def clock(seconds: float) -> str:
    """Return seconds after midnight as a time such as 08:00, or 08:00:30."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}" + (f":{rest:02d}" if rest else "")


def _said(typed: Mapping[str, Setting]) -> dict[str, tuple[str, str]]:
    """Return the fields of the plan as options: the names and the values that a user knows."""
    fields = {"batch": "batch_seconds", "budget-per-day": "budget"}
    return {
        fields.get(name, name): (f"--{name}", value if isinstance(value, str) else f"{value:g}")
        for name, value in typed.items()
    }


def private_folder(out: Path) -> Path:
    """Make the folder for what is not to be published, which no other user may enter, and say so in it."""
    private = make_folder(out / PRIVATE_FOLDER)
    private.chmod(0o700)
    write_atomic(private / "README.txt", _README)
    return private


def _records(path: Path | None, day: str | None, plan: Plan) -> DayTrips:
    """Read or draw the trips."""
    if path is None and day is not None:
        raise InputError("--date goes with --trips FILE: the synthetic city has one day.")
    wanted = None if day is None else options.day(day)
    span = {"start": plan.start, "end": plan.end}
    if path is None:
        return trips_of_city(seed=plan.seed, **span)
    return trips_of_file(path, wanted, **span)


def write_tables(out: Path, played: Played, told: dict[str, Any], true: dict[str, Any]) -> None:
    """Write what may be published to a folder, and the rest to the one inside that is not to be."""
    private = out / PRIVATE_FOLDER
    write_rows(out / "day.parquet", played.batches)
    write_rows(out / "agents.parquet", played.agents)
    show.write_json(out / "summary.json", told)
    write_rows(private / "true-day.parquet", played.true_batches)
    write_rows(private / "true-agents.parquet", played.true_agents)
    show.write_json(private / "true-summary.json", true)


def _draw(out: Path, played: Played, told: dict[str, Any], true: dict[str, Any]) -> None:
    save_both(day_figure(played.batches, played.agents, told), out, "day")
    batches = played.batches.join(played.true_batches, on="batch")
    agents = played.agents.join(played.true_agents, on="agent", how="left")
    save_both(true_figure(batches, agents, told, true), out / PRIVATE_FOLDER, "true-day")


def _print_summary(told: dict[str, Any], true: dict[str, Any], plan: Plan, out: Path) -> None:
    where = "a synthetic city" if told["made_up"] else f"{told['source']}, {told['date']}"
    batches = show.counted(told["batches"], "batch", "batches")
    show.say(f"A day of {where}: {plan.method}, {batches} of {plan.batch_seconds:g} s")
    show.show_table(("what", ""), _lines(told))
    if true["loss"] is not None:
        show.say("Not to be published, since it is computed from the true places of the agents:")
        show.show_table(("what", ""), _true_lines(true))
    show.say(spread(plan))
    show.show_guarantee(guarantee(plan))
    for note in told["notes"]:
        show.say(f"Note: {note}")
    show.say(
        f"To be published as you like: {out / 'day.parquet'}, agents.parquet, summary.json, day.png and day.svg. Never "
        f"publish {out / PRIVATE_FOLDER}: it holds true places and figures computed from them."
    )


def _lines(told: dict[str, Any]) -> list[tuple[str, str]]:
    patience = told["plan"]["patience"] / 60
    lines = [
        ("agents that asked", f"{told['asked']:,}"),
        ("matched", f"{told['matched']:,}"),
        (f"gave up after {patience:g} minute{'s' * (patience != 1)}", f"{told['gave_up']:,}"),
        ("still waiting at the end", f"{told['waiting_at_the_end']:,}"),
        ("vehicles, and the fewest that were free", f"{told['plan']['vehicles']:,}, {told['free_least']:,}"),
    ]
    if told["pick_up_by_median_seconds"] is not None:
        waits = f"{told['pick_up_by_median_seconds'] / 60:.1f}, {told['pick_up_by_90_seconds'] / 60:.1f}"
        lines.append(("minutes until the latest pick-up: median, slowest tenth", waits))
    if told["epsilon_max"] is not None:
        lines.append(("carried over to a later batch", f"{told['carried_over']:,}"))
        lines.append(("times that an agent took part without a charge", f"{told['uncharged_plays']:,}"))
        spent = f"{told['epsilon_mean']:.2f}, {told['epsilon_max']:.2f}"
        lines.append(("ε charged to an agent over the day: mean, most", spent))
    return lines


def _true_lines(true: dict[str, Any]) -> list[tuple[str, str]]:
    spread_of_batches = true["loss_of_batches_sd"]
    plus = "" if spread_of_batches is None else f" ± {100 * spread_of_batches:.1f}"
    lines = [("welfare lost against the optimum of each batch, in %", f"{100 * true['loss']:.1f}{plus}")]
    if true["wait_median_seconds"] is not None:
        waits = f"{true['wait_median_seconds'] / 60:.1f}, {true['wait_90_seconds'] / 60:.1f}"
        lines.append(("minutes until picked up: median, slowest tenth", waits))
    return lines
