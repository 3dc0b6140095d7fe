"""palmatch day: all batches of a day in a row, with vehicles that move, agents that wait, and budgets for the day.

What may be published is written to the folder itself; what is computed from true places, or holds them, to a folder of
its own inside, which says so.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from palmatch.atomic import make_folder, write_atomic
from palmatch.cli import options, show
from palmatch.errors import InputError
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
from palmatch.studies.tasks import write_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class DayOptions:
    """The public numbers of a day, in the units of a user.

    Attributes
    ----------
    batch:
        Seconds of a batch.
    edge:
        Edge of the square regions, in metres.
    epsilon:
        What an agent spends on its report.
    budget_per_day:
        What an agent may spend in the day; then ε = 0.
    patience:
        Minutes after which an agent gives up.
    speed:
        Kilometres an hour along the streets.
    interest:
        Nearest vehicles that each possible type considers.
    start:
        Time of the first batch, as 08:00.
    end:
        Time at which the last batch ends, as 24:00.
    """

    PANEL: ClassVar = None
    batch: float = 30.0
    edge: float = 1000.0
    epsilon: float = 1.0
    budget_per_day: float = 1.0
    patience: float = 10.0
    speed: float = 18.0
    interest: int = 20
    start: str = "00:00"
    end: str = "24:00"

    def plan(self, vehicles: int, method: str, seed: int | None) -> Plan:
        """Return the numbers in the units of a study, after their check; a refusal names the options."""
        plan = Plan(
            vehicles=vehicles,
            method=method,
            batch_seconds=self.batch,
            edge=self.edge,
            epsilon=self.epsilon,
            budget=self.budget_per_day,
            patience=60 * self.patience,
            speed=self.speed / 3.6,
            interest=self.interest,
            start=seconds_of(self.start, "--start"),
            end=seconds_of(self.end, "--end"),
            seed=seed,
        )
        fields = {"batch": "batch_seconds", "budget-per-day": "budget"}
        typed: dict[str, Any] = {name.replace("_", "-"): value for name, value in asdict(self).items()}
        typed |= {"start": clock(plan.start), "end": clock(plan.end), "vehicles": vehicles}
        words = {name: value if isinstance(value, str) else f"{value:g}" for name, value in typed.items()}
        check(plan, said={fields.get(name, name): (f"--{name}", value) for name, value in words.items()})
        return plan


def day(
    *,
    trips: Path | None = None,
    date: str | None = None,
    out: Path = Path("day"),
    method: str = "once",
    chosen: DayOptions,
    vehicles: int | None = None,
    seed: options.MaybeNatural = None,
    explain: bool = False,
    json: Path | None = None,
) -> None:
    """Play a whole day of taxi requests: vehicles move, agents wait, each has one budget for the day.

    Parameters
    ----------
    date:
        The day, as 2016-01-15; the file's first unless given.
    out:
        The folder for the results.
    method:
        The method of every batch.
    vehicles:
        How many; 1.1 times the trips that are under way at once unless given.

    Examples
    --------
    Example: palmatch day --trips yellow_tripdata_2016-01.csv --date 2016-01-15 --out day

    Example: palmatch day --start 08:00 --end 08:30 --out morning

    Without --trips it is a day of a synthetic city. The folder do-not-publish inside of --out holds true places and
    figures computed from them: never publish it.
    """
    show.check_outputs([trips], json=json)
    plan = chosen.plan(1 if vehicles is None else vehicles, method, seed)
    private = private_folder(out)
    records = _records(trips, date, plan)
    if vehicles is None:
        under_way = records.under_way(Area(plan.edge, records.made_up), speed=plan.speed)
        # More than those, since vehicles also drive back to where they began.
        plan = replace(plan, vehicles=max(1, round(1.1 * under_way)))
    with show.progress_bar("day") as progress:
        played = play_day(records, plan, private / "budgets.ledger", progress=lambda *done: progress("batches", *done))
    told, true = summary(records, plan, played), true_figures(played)
    try:
        write_tables(out, played, told, true)
        _draw(out, played, told, true)
    except OSError as error:
        raise InputError(f"{out}: cannot be written to ({error.strerror}); choose another --out.") from None
    if show.write_json(json, told):
        _print_summary(told, true, plan, out, explain)


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


def private_folder(out: Path) -> Path:
    """Make the folder for what is not to be published, which no other user may enter, and say so in it."""
    private = make_folder(out / PRIVATE_FOLDER, private=True)
    write_atomic(private / "README.txt", Path(__file__).with_name("do-not-publish.txt").read_text(encoding="utf-8"))
    return private


def _records(path: Path | None, day: str | None, plan: Plan) -> DayTrips:
    """Read or draw the trips."""
    if path is not None:
        wanted = None if day is None else options.time_of(dt.date, day, "--date", "a day such as 2016-01-15")
        return trips_of_file(path, wanted, start=plan.start, end=plan.end)
    if day is not None:
        raise InputError("--date goes with --trips FILE: the synthetic city has one day.")
    return trips_of_city(seed=plan.seed, start=plan.start, end=plan.end)


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
    from palmatch.report.figures import day_figure
    from palmatch.report.style import save_both

    save_both(day_figure(played.batches, played.agents, told), out, "day")
    batches = played.batches.join(played.true_batches, on="batch")
    agents = played.agents.join(played.true_agents, on="agent", how="left")
    save_both(day_figure(batches, agents, told, true), out / PRIVATE_FOLDER, "true-day")


def _print_summary(told: dict[str, Any], true: dict[str, Any], plan: Plan, out: Path, explain: bool) -> None:
    where = "a synthetic city" if told["made_up"] else f"{told['source']}, {told['date']}"
    batches = show.counted(told["batches"], "batch", "batches")
    show.say(f"A day of {where}: {plan.method}, {batches} of {plan.batch_seconds:g} s")
    patience = plan.patience / 60
    lines = {
        "agents that asked": f"{told['asked']:,}",
        "matched": f"{told['matched']:,}",
        f"gave up after {patience:g} minute{'s' * (patience != 1)}": f"{told['gave_up']:,}",
        "still waiting at the end": f"{told['waiting_at_the_end']:,}",
        "vehicles, and the fewest that were free": f"{plan.vehicles:,}, {told['free_least']:,}",
        "minutes until the latest pick-up: median, slowest tenth": _minutes(told, "pick_up_by"),
    }
    if told["epsilon_max"] is not None:
        lines["carried over to a later batch"] = f"{told['carried_over']:,}"
        lines["times that an agent took part without a charge"] = f"{told['uncharged_plays']:,}"
        spent = f"{told['epsilon_mean']:.2f}, {told['epsilon_max']:.2f}"
        lines["ε charged to an agent over the day: mean, most"] = spent
    show.show_table(("what", ""), [line for line in lines.items() if line[1]])
    if true["loss"] is not None:
        show.say("Not to be published, since it is computed from the true places of the agents:")
        plus = "" if true["loss_of_batches_sd"] is None else f" ± {100 * true['loss_of_batches_sd']:.1f}"
        lines = {
            "welfare lost against the optimum of each batch, in %": f"{100 * true['loss']:.1f}{plus}",
            "minutes until picked up: median, slowest tenth": _minutes(true, "wait"),
        }
        show.show_table(("what", ""), [line for line in lines.items() if line[1]])
    show.say(spread(plan))
    show.show_guarantee(guarantee(plan), explain=explain)
    for note in told["notes"]:
        show.say(f"Note: {note}")
    show.say(
        f"To be published as you like: {out / 'day.parquet'}, agents.parquet, summary.json, day.png and day.svg. Never "
        f"publish {out / PRIVATE_FOLDER}: it holds true places and figures computed from them."
    )


def _minutes(told: dict[str, Any], what: str) -> str:
    """Return the median and the slowest tenth of waits in minutes; nothing where there were none."""
    median, slow = (told[f"{what}_{which}_seconds"] for which in ("median", "90"))
    return "" if median is None else f"{median / 60:.1f}, {slow / 60:.1f}"
