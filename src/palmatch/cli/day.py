"""palmatch day: all batches of a day in a row, with vehicles that move, people who wait, and budgets for the day."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date as calendar_date
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

import palmatch
from palmatch.cli import options, show
from palmatch.cli.outputs import check_outputs
from palmatch.errors import InputError
from palmatch.report.day_figures import day_figure
from palmatch.report.paper_figures import save_both
from palmatch.studies.cells import Setting, check_settings, write_rows
from palmatch.studies.day import Played, play_day, summary
from palmatch.studies.day_plan import Plan, check, promise, spread
from palmatch.studies.day_trips import DAY, DayTrips, trips_of_city, trips_of_file

NAME = "day"
HELP = "Play a whole day of taxi requests: vehicles move, people wait, everybody has one budget for the day."
EXAMPLES = (
    "Example: palmatch day --trips yellow_tripdata_2016-01.csv --date 2016-01-15 --out day\n\n"
    "Example: palmatch day --start 08:00 --end 08:30 --out morning\n\n"
    "Without --trips it is a day of a made-up city. A day that was stopped goes on with the same command."
)

# So many times the trips that were under way at once are needed, since vehicles also drive to people, and back.
_SPARE = 1.1


def command(
    trips: Annotated[
        Path | None, typer.Option("--trips", help="Taxi trips with coordinates (CSV, .gz, .zip, Parquet).")
    ] = None,
    date: Annotated[
        str | None, typer.Option("--date", help="The day, as 2016-01-15; the file's first unless given.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="The folder for the results.")] = Path("day"),
    policy: Annotated[str, typer.Option("--policy", help="The method of every batch.")] = "once",
    batch: Annotated[float, typer.Option("--batch", help="Seconds of a batch.")] = 30.0,
    edge: options.Edge = 1000.0,
    epsilon: Annotated[float, typer.Option("--epsilon", help="What a person spends in a batch.")] = 1.0,
    budget: Annotated[
        float, typer.Option("--budget-per-day", help="What a person may spend in the day; then ε = 0.")
    ] = 1.0,
    delta: options.Delta = 1e-5,
    vehicles: Annotated[
        int | None,
        typer.Option("--vehicles", help="How many; 1.1 times the trips on record that were under way at once."),
    ] = None,
    patience: Annotated[float, typer.Option("--patience", help="Minutes after which a person gives up.")] = 10.0,
    speed: Annotated[float, typer.Option("--speed", help="Kilometres an hour along the streets.")] = 18.0,
    interest: Annotated[int, typer.Option("--interest", help="Nearest vehicles that each person cares for.")] = 20,
    start: Annotated[str, typer.Option("--start", help="Time of the first batch, as 08:00.")] = "00:00",
    end: Annotated[str, typer.Option("--end", help="Time at which the last batch ends, as 24:00.")] = "24:00",
    seed: options.Seed = 0,
    json: options.Json = None,
) -> None:
    """Play a day."""
    first, last = seconds_of(start, "--start"), seconds_of(end, "--end")
    plan = Plan(
        vehicles=vehicles if vehicles is not None else 1,
        policy=policy,
        batch_seconds=batch,
        edge=edge,
        epsilon=epsilon,
        delta=delta,
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
        "delta": delta,
        "patience": patience,
        "speed": speed,
        "interest": interest,
        "start": clock(first),
        "end": clock(last),
    }
    check_outputs(trips, json=json)
    check(plan, said=_said(typed | {"vehicles": plan.vehicles}))
    records = _records(trips, date, plan, out)
    if vehicles is None:
        plan = replace(plan, vehicles=max(1, round(_SPARE * records.about.under_way)))
    # What follows from others comes last, so that a refusal names what the user has changed.
    settings = {"study": NAME, "policy": policy, "seed": seed, **typed, "vehicles": plan.vehicles}
    check_settings(out, settings | {"trips": records.about.digest, "palmatch": palmatch.__version__})
    with show.progress_bar("day") as report:
        played = play_day(records, plan, out / "day.db", watch=lambda done, total: report("batches", done, total))
    told = summary(records, plan, played)
    _write(out, played, told)
    if str(json) != "-":
        _tell(told, plan, out)
    show.write_json(json, told)


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


def _records(path: Path | None, day: str | None, plan: Plan, out: Path) -> DayTrips:
    """Read or draw the trips."""
    if path is None and day is not None:
        raise InputError("--date goes with --trips FILE: the made-up city has one day.")
    wanted = None if day is None else _date(day)
    span = {"speed": plan.speed, "start": plan.start, "end": plan.end}
    if path is None:
        return trips_of_city(out / "trips", seed=plan.seed, **span)
    return trips_of_file(path, wanted, out / "trips", **span)


def _date(text: str) -> calendar_date:
    try:
        return calendar_date.fromisoformat(text)
    except ValueError:
        raise InputError(f"Expected a day such as 2016-01-15, got --date {text!r}.") from None


def _write(out: Path, played: Played, told: dict[str, Any]) -> None:
    try:
        for name, rows in (("day", played.batches), ("people", played.people)):
            write_rows(out / f"{name}.parquet", rows)
        show.write_json(out / "summary.json", told)
        save_both(day_figure(played.batches, played.people, told), out, "day")
    except OSError as error:
        raise InputError(f"{out}: cannot be written to ({error.strerror}); choose another --out.") from None


def _tell(told: dict[str, Any], plan: Plan, out: Path) -> None:
    where = "a made-up city" if told["made_up"] else f"{told['source']}, {told['date']}"
    batches = show.counted(told["batches"], "batch", "batches")
    show.say(f"A day of {where}: {plan.policy}, {batches} of {plan.batch_seconds:g} s")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("what")
    table.add_column("", justify="right", no_wrap=True)
    for what, value in _lines(told):
        table.add_row(what, value)
    show.out().print(table)
    show.say(spread(plan))
    show.show_guarantee(promise(plan))
    for note in told["notes"]:
        show.say(f"Note: {note}")
    show.say(f"Look at {out / 'day.png'}; the numbers are in {out / 'day.parquet'}, {out / 'people.parquet'}.")


def _lines(told: dict[str, Any]) -> list[tuple[str, str]]:
    patience = told["plan"]["patience"] / 60
    lines = [
        ("people who asked", f"{told['asked']:,}"),
        ("picked up", f"{told['picked_up']:,}"),
        (f"gave up after {patience:g} minute{'s' * (patience != 1)}", f"{told['gave_up']:,}"),
        ("still waiting at the end", f"{told['waiting_at_the_end']:,}"),
        ("vehicles, and the fewest that were free", f"{told['plan']['vehicles']:,}, {told['free_least']:,}"),
    ]
    if told["loss"] is not None:
        spread_of_batches = told["loss_of_batches_sd"]
        plus = "" if spread_of_batches is None else f" ± {100 * spread_of_batches:.1f}"
        lines.append(("welfare lost against the optimum of each batch, in %", f"{100 * told['loss']:.1f}{plus}"))
    if told["wait_median_seconds"] is not None:
        waits = f"{told['wait_median_seconds'] / 60:.1f}, {told['wait_90_seconds'] / 60:.1f}"
        lines.append(("minutes until picked up: median, slowest tenth", waits))
    if told["epsilon_max"] is not None:
        lines.append(("carried over to a later batch", f"{told['carried_over']:,}"))
        lines.append(("times that somebody played with ε = 0", f"{told['played_without_budget']:,}"))
        lines.append(
            ("ε of a person over the day: mean, most", f"{told['epsilon_mean']:.2f}, {told['epsilon_max']:.2f}")
        )
    took = told["seconds"]
    if took:
        longest = max(took, key=lambda what: took[what])
        lines.append((f"seconds of this run, of which {longest}", f"{sum(took.values()):,.0f}, {took[longest]:,.0f}"))
    return lines
