"""palmatch demo: the whole job on the synthetic city, from records to a page one can look at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from palmatch.cli import options, show
from palmatch.cli.compare import explain_rows, show_rows, tell_limit
from palmatch.cli.compare import figures as compare_figures
from palmatch.cli.options import option
from palmatch.cli.show import check_outputs, folder_for
from palmatch.data import city
from palmatch.data.files import write_rows
from palmatch.domains import mobility
from palmatch.domains.mobility import read_points
from palmatch.matching import Matching
from palmatch.methods import METHODS, Settings, Workspace, prepare
from palmatch.report.page import write_report
from palmatch.studies.compare import compare
from palmatch.studies.limit import LIMIT

HELP = "Match a morning in a synthetic city by many methods, and write a page about it."
EXAMPLES = "Example: palmatch demo --out demo --data-seed 1"

# The methods whose rounds are worth watching step by step.
_WATCHED = ("once", "palma", "published", "noise", "alma")


def command(
    out: Annotated[Path, option("--out", "The folder for report.html and its pictures.")] = Path("demo"),
    seed: options.SecretSeed = None,
    data_seed: options.DataSeed = 0,
    hour: Annotated[float, option("--hour", "Hour of the day: 5, 8, 11, 19, or any other.")] = 8.0,
    edge: options.Edge = 1000.0,
    runs: options.Runs = 32,
    epsilon: options.Epsilon = 1.0,
    delta: options.Delta = 1e-5,
    limit: Annotated[
        bool, option("--limit", "Add what no private method can beat; every run then draws its own agents.")
    ] = False,
    json: options.Json = None,
) -> None:
    """Run the demonstration."""
    check_outputs(json=json)
    folder = folder_for(out)
    batch = city.batch(hour, seed=data_seed)
    files = {name: folder / f"{name}.csv" for name in ("agents", "vehicles")}
    for name, places in (("agents", batch.requests), ("vehicles", batch.vehicles)):
        ids = [f"{name[0]}{row}" for row in range(len(places))]
        write_rows(files[name], {"id": ids, "lat": places[:, 0], "lon": places[:, 1]})
    # From the files, so that whoever matches them gets the same problem.
    problem = mobility.problem(
        read_points(files["agents"], role="agents"), read_points(files["vehicles"], role="resources"), edge=edge
    )
    chosen = "" if seed is None else f" --seed {seed}"
    settings = Settings(epsilon=epsilon, delta=delta)
    workspace = Workspace(problem)
    with show.progress_bar("demo") as progress:
        names = [*([LIMIT] if limit else []), *METHODS]
        result = compare(workspace, names, runs=runs, settings=settings, seed=seed, edge=edge, progress=progress)
        written = write_report(
            folder,
            result,
            title=f"A synthetic city at {int(hour):02d}:{round(hour % 1 * 60):02d}",
            headline="once",
            settings=settings,
            seed=seed,
            command=f"palmatch demo{chosen} --data-seed {data_seed} --hour {hour:g} --edge {edge:g} --runs {runs}"
            + " --limit" * limit,
            outline=city.outline(),
            traces=_watch(workspace, settings, seed),
        )
    if show.write_json(json, compare_figures([result], seed)):
        show.say(f"A synthetic city, {hour:g} o'clock: {show.size_of(problem)}")
        show.say_seeded(seed)
        show_rows(sorted(result.rows, key=lambda row: row.loss_mean))
        explain_rows(result.rows)
        if result.limit is not None:
            tell_limit(result.limit)
        show.say(f"{show.FROM_THE_TRUTH} Here they may be: the city is synthetic.")
        show.say(f"The files are {folder / 'agents.csv'} and {folder / 'vehicles.csv'}. Match them yourself:")
        show.say(f"  palmatch match {folder / 'agents.csv'} {folder / 'vehicles.csv'} --out pairs.csv")
        show.say(
            f"Open {next(path for path in written if path.suffix == '.html')} to see which agent got which vehicle."
        )
        show.say("Play it round by round, or be an agent yourself, in the browser at http://127.0.0.1:8765/ after")
        show.say(f"  palmatch explore {files['agents']} {files['vehicles']}")


def _watch(workspace: Workspace, settings: Settings, seed: int | None) -> dict[str, Matching]:
    return {name: prepare(workspace, name, settings=settings, trace=True).play(seed) for name in _WATCHED}
