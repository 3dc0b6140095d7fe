"""palmatch data: fetch what others have published, just as much as is needed."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping
from datetime import datetime, time
from pathlib import Path
from typing import Annotated

import typer

from palmatch.cli import options, show
from palmatch.cli.options import option
from palmatch.cli.outputs import check_outputs
from palmatch.data import portal as portals
from palmatch.data.files import write_rows
from palmatch.data.tlc import read_trips, window
from palmatch.errors import InputError

NAME = "data"
HELP = "Fetch public data: just the minutes that are needed."
TAXI_HELP = "Fetch minutes of New York's taxi trips, with coordinates, from NYC Open Data."
EXAMPLES = (
    "Example: palmatch data taxi --date 2016-01-15 --at 08:00:00 --at 19:00:00 --out trips.csv\n\n"
    "Example: palmatch data taxi --date 2014-05-02 --at 08:00 --dataset gkne-dk5s --out trips.csv\n\n"
    "PALMATCH_PORTAL names another portal, PALMATCH_CACHE another cache; SOCRATA_APP_TOKEN is sent along if set."
)

app = typer.Typer(
    name=NAME,
    help=HELP,
    epilog="Example: palmatch data taxi --date 2016-01-15 --at 08:00:00 --out trips.csv",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
)


@app.callback()
def _words() -> None:
    """Keep `taxi` a subcommand of its own while it is the only one."""


@app.command("taxi", help=TAXI_HELP, epilog=EXAMPLES)
def taxi(
    day: Annotated[str, option("--date", "Day, as YYYY-MM-DD; 2016-01-01 to 2016-06-30.")],
    at: Annotated[list[str], option("--at", "When a window begins, as HH:MM:SS; more than once for more.")],
    out: Annotated[Path, option("--out", "Where the trips go: .csv.")],
    seconds: Annotated[float, option("--seconds", "How long a window lasts.")] = 30.0,
    before: Annotated[
        float | None, option("--before", "Minutes before each window, for vehicles; 5, or twice a longer window.")
    ] = None,
    dataset: Annotated[str, option("--dataset", "The portal's dataset; --date has to be in it.")] = portals.DATASET,
    portal: Annotated[
        str | None, option("--portal", f"Address of the portal or a mirror; {portals.PORTAL} unless given.")
    ] = None,
    cache: Annotated[
        Path | None, option("--cache", "Folder that keeps answers; ~/.cache/palmatch unless given.")
    ] = None,
    no_cache: Annotated[bool, option("--no-cache", "Ask for everything anew, keep nothing.")] = False,
    page: Annotated[int, option("--page", "Rows to ask for at a time.")] = portals.PAGE_ROWS,
    json: options.Json = None,
) -> None:
    """Fetch the trips of the windows and of the minutes before them."""
    # Before anything is downloaded; - is refused as well, since the file is read again.
    if out.suffix.lower() != ".csv":
        raise InputError(f"Expected a file that ends in .csv, got --out {out}; choose another name.")
    check_outputs(out=out, json=json)
    if no_cache and cache is not None:
        raise InputError(f"Expected --cache or --no-cache, got both (--cache {cache}); leave one out.")
    ats = moments(day, at)
    with show.progress_bar("taxi trips") as progress:
        found = portals.download(
            ats,
            seconds=seconds,
            before=before,
            dataset=dataset,
            portal=portal,
            cache=None if no_cache else cache or portals.cache_folder(),
            page_rows=page,
            progress=progress,
        )
    write_rows(out, found.trips)
    requests, remarks = _requests(out, ats, seconds=seconds)
    notes = [*found.notes, *remarks]
    if show.write_json(json, _figures(found, out, requests, dataset=dataset, notes=notes)):
        _tell(found, out, requests, notes=notes)


def moments(day: str, times: list[str]) -> list[datetime]:
    """Return when the windows begin."""
    return [datetime.combine(options.day(day), _clock(text)) for text in times]


def _clock(text: str) -> time:
    for notation in ("%H:%M:%S", "%H:%M"):
        try:
            return datetime.strptime(text, notation).time()
        except ValueError:
            continue
    raise InputError(f"Expected a time of day such as 08:00:00, got --at {text!r}; the day is for --date.")


def _requests(out: Path, ats: list[datetime], *, seconds: float) -> tuple[dict[str, int], list[str]]:
    """Cut the windows as a user of the file will, to say now what would be missing then."""
    trips = read_trips(out)
    requests, notes = {}, []
    for at in ats:
        try:
            cut = window(trips, at, seconds=seconds)
        except InputError as mistake:
            notes.append(f"{mistake} A larger --before brings more vehicles, a larger --seconds more requests.")
        else:
            requests[str(at)] = len(cut.requests)
            notes += [f"{at:%H:%M:%S}: {note}" for note in (*cut.warnings, *cut.notes)]
    notes += [f"Rows that will be left out for {reason}: {count:,}." for reason, count in trips.dropped.items()]
    return requests, notes


def _tell(found: portals.Download, out: Path, requests: Mapping[str, int], *, notes: list[str]) -> None:
    for span, rows in found.rows.items():
        show.say(f"{span}: {show.counted(rows, 'trip')}")
    for at, count in requests.items():
        show.say(f"Window at {at}: {show.counted(count, 'request')} in Manhattan, as many vehicles")
    for note in notes:
        show.say(f"Note: {note}")
    show.say(f"Trips are in {out} (requests to the portal: {found.asked}, answers from the cache: {found.kept}).")
    if requests:
        times = [word for at in requests for word in ("--at", at)]
        show.say(f"Next: {shlex.join(['palmatch', 'reproduce', 'mobility', '--trips', str(out), *times])}")


def _figures(
    found: portals.Download, out: Path, requests: Mapping[str, int], *, dataset: str, notes: list[str]
) -> dict[str, object]:
    return {
        "dataset": dataset,
        "file": str(out),
        "sha256": hashlib.sha256(out.read_bytes()).hexdigest(),
        "spans": [{"start": str(span.start), "end": str(span.end), "rows": rows} for span, rows in found.rows.items()],
        "windows": [{"at": at, "requests": count} for at, count in requests.items()],
        "asked": found.asked,
        "kept": found.kept,
        "notes": notes,
    }
