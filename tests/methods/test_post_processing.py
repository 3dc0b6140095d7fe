"""After the reports nothing depends on what an agent is: two problems that differ in true types alone look the same.

Every problem is made by the command from files. Reports are forced (`forced.forced_reports`), the public seed is one:
the matching, its trace, its charges, its guarantee and every file that may be published are then equal in every byte.
"""

import json
from collections.abc import Callable
from dataclasses import astuple
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import palmatch as pm
from forced import forced_reports
from palmatch.device.grid import spot_position
from palmatch.device.messages import Partition
from running import run

# Methods whose agents never act on what they are, after one report at most.
METHODS = {name: one for name, one in pm.METHODS.items() if one.private and (one.game is None or not one.spends)}
PARTITION = Partition(1000.0, 250.0, (40.7, -74.0))
# Some agents tell nothing, some leave ε to the caller.
MIXED, POSITIVE = ("1", "0", "0.5", "", "4"), ("1", "2", "0.5", "", "4")
IDS = [f"a{number:02}" for number in range(14)]


class Setting(NamedTuple):
    """Files that both problems share, the agents of each, and the words of the command."""

    shared: dict[str, str]
    agents: tuple[str, str]
    words: tuple[object, ...]
    out: str = "pairs.csv"


class Both(NamedTuple):
    """A setting with its two folders and its two problems."""

    setting: Setting
    folders: tuple[Path, Path]
    workspaces: tuple[pm.Workspace, pm.Workspace]


def lines(*rows):
    return "".join(",".join(map(str, row)) + "\n" for row in rows)


def places(chance, squares):
    """Return a place in each of these squares of a row: on no grid point, and not on the edge."""
    spots = [(spot_position(PARTITION, column, 3, int(chance.integers(24))), column) for column in squares]
    centres = [spot_position(PARTITION, column, 3, PARTITION.spots // 2) for _, column in spots]
    middles = [0.1 * np.array(centre) + 0.9 * np.array(spot) for (spot, _), centre in zip(spots, centres, strict=True)]
    return [f"{latitude:.7f},{longitude:.7f}" for latitude, longitude in middles]


# The last of the constraints is a pair that is matched beforehand.
LIMITS = {"limits.csv": lines(("r0", "a01", -1), ("r1", "a02", -1), ("r2", "a02", -1), ("r3", "a05", 1))}
CONFLICTS = {"limits.csv": lines(("agent", "resource"), ("a01", "a02"), ("a03", "a07"))}
DEMAND = [2, 1, 1, 3, 0, 2, 1]
AT = ("--origin", "40.7,-74", "--spacing", 250, "--edge", 1000)


def city(epsilon, *words, limits):
    chance = np.random.default_rng(1)
    squares = [number % 3 for number in range(len(IDS))]
    cars = places(chance, [0, 0, 1, 1, 2, 2, 0, 1, 2, 2])
    agents = [
        lines(
            ("id", "lat,lon", "epsilon", "demand"),
            *zip(IDS, places(chance, squares), epsilon * 3, DEMAND * 2 if limits else [1] * 14, strict=False),
        )
        for _ in range(2)
    ]
    room = [2, 1, 3, 1, 1, 1, 4, 1, 0, 1] if limits else [1] * 10
    resources = lines(("id", "lat,lon", "capacity"), *((f"r{n}", car, room[n]) for n, car in enumerate(cars)))
    words = (*AT, *words, *(("--conflicts", "limits.csv") if limits else ()))
    return Setting({"resources.csv": resources, **LIMITS}, (agents[0], agents[1]), words)


def crowd():
    """So many agents that channels are chosen, and bids are made, as for a crowd."""
    chance, agents = np.random.default_rng(7), 2_040
    cars = places(chance, [number % 40 for number in range(300)])
    resources = lines(("id", "lat,lon", "capacity"), *((f"r{n}", car, 1 + n % 7) for n, car in enumerate(cars)))
    squares = [number % 40 for number in range(agents)]
    requests = [
        lines(("id", "lat,lon", "epsilon"), *zip(range(agents), places(chance, squares), MIXED * 408, strict=True))
        for _ in range(2)
    ]
    return Setting({"resources.csv": resources}, (requests[0], requests[1]), (*AT, "--interest", 8))


def conference():
    chance = np.random.default_rng(2)
    areas = ("ml", "db", "pl", "hci", "se")

    def labelled(firsts):
        rows = []
        for first in firsts:
            marks = np.zeros(5, dtype=int)
            marks[[first, *chance.choice(5, size=2, replace=False)]] = 1
            rows.append((areas[first], *marks.tolist()))
        return rows

    papers = [(f"r{n}", *row, 2) for n, row in enumerate(labelled([0, 1, 2, 3, 4, 0, 1, 2]))]
    reviewers = [
        lines(
            ("id", "primary", *areas, "epsilon", "demand"),
            *((name, *row, own, wanted)
              for name, row, own, wanted in zip(IDS, labelled([0, 1, 2] * 5), MIXED * 3, DEMAND * 2, strict=False)),
        )
        for _ in range(2)
    ]  # fmt: skip
    shared = {"resources.csv": lines(("id", "primary", *areas, "capacity"), *papers), **LIMITS}
    words = ("--domain", "papers", "--areas", 3, "--conflicts", "limits.csv")
    return Setting(shared, (reviewers[0], reviewers[1]), words, "pairs.json")


def rows_of(chance, columns):
    """Return a file of types of two regions, without its header, and for each region what draws an agent's own row."""
    possible = np.round(chance.uniform(0.1, 1.0, size=(2, 5, columns)), 2)
    types = lines(*((region, *row) for region, table in zip("ns", possible, strict=True) for row in table.tolist()))
    # Somewhat off the possible types: which agents are, is private.
    near = lambda table: (table[chance.integers(5)] - chance.choice([0, 0.01]) * chance.random(columns)).tolist()  # noqa: E731
    return types, [lambda table=table: near(table) for table in possible]


def table():
    chance = np.random.default_rng(3)
    names = [f"r{number}" for number in range(8)]
    types, own = rows_of(chance, 8)
    agents = [
        lines(
            ("id", "region", "epsilon", "demand", *names),
            *((name, "ns"[n % 2], (MIXED * 3)[n], (DEMAND * 2)[n], *own[n % 2]()) for n, name in enumerate(IDS)),
        )
        for _ in range(2)
    ]
    resources = lines(("id", "capacity"), *zip(names, [2, 1, 3, 1, 1, 1, 2, 0], strict=True))
    shared = {"resources.csv": resources, "types.csv": lines(("region", *names)) + types, **LIMITS}
    words = ("--domain", "table", "--types", "types.csv", "--conflicts", "limits.csv")
    return Setting(shared, (agents[0], agents[1]), words)


def scores():
    chance = np.random.default_rng(4)
    names = [f"r{number}" for number in range(8)]

    def scored(who):
        chosen = [(user, chance.choice(names, size=4, replace=False)) for user in who]
        return [(paper, user, round(float(chance.random()), 2)) for user, papers in chosen for paper in papers]

    types = [
        ("ns"[int(kind[1:]) % 2], kind, paper, score, int(kind in ("t0", "t1")))
        for paper, kind, score in scored(f"t{n}" for n in range(8))
    ]
    shared = {
        "resources.csv": lines(("id",), *((name,) for name in names)),
        "types.csv": lines(("region", "type", "paper", "score", "representative"), *types),
        "regions.csv": lines(*((name, "ns"[n % 2]) for n, name in enumerate(IDS))),
        "most.csv": lines(*zip(IDS, DEMAND * 2, strict=True)),
        **LIMITS,
    }
    words = (
        "--domain", "table", "--types", "types.csv", "--regions", "regions.csv", "--max-papers", "most.csv",
        "--conflicts", "limits.csv", "--capacity", 2,
    )  # fmt: skip
    return Setting(shared, (lines(*scored(IDS)), lines(*scored(IDS))), words, "pairs.json")


def bids():
    """Public affinities, private bids: also bids that no possible type has, and -1, which is no conflict."""
    chance, names = np.random.default_rng(8), [f"r{number}" for number in range(8)]
    known = [
        (paper, user, round(float(chance.random()), 2)) for user in IDS[:-1] for paper in names if chance.random() < 0.7
    ]
    own = [
        [(paper, user, chance.choice([-1, 0.3, 1])) for user in IDS for paper in names if chance.random() < 0.5]
        for _ in range(2)
    ]
    shared = {
        "resources.csv": lines(("id",), *((name,) for name in names)),
        "affinity.csv": lines(*known),
        "most.csv": lines(*zip(IDS, DEMAND * 2, strict=True)),
        **LIMITS,
    }
    words = (
        "--domain", "table", "--public", "affinity.csv", "--max-papers", "most.csv", "--conflicts", "limits.csv",
        "--capacity", 2, "--score-range", "-1,1", "--bid-levels", "-1,0,1", "--weights", "1,2",
    )  # fmt: skip
    return Setting(shared, (lines(*own[0]), lines(*own[1])), words, "pairs.json")


def partners(epsilon):
    chance = np.random.default_rng(5)
    types, own = rows_of(chance, len(IDS))
    agents = [
        lines(
            ("id", "region", "epsilon", *IDS),
            *((name, "ns"[n % 2], (epsilon * 3)[n], *own[n % 2]()) for n, name in enumerate(IDS)),
        )
        for _ in range(2)
    ]
    shared = {"types.csv": lines(("region", *IDS)) + types, **CONFLICTS}
    words = ("--pairs", "--domain", "table", "--types", "types.csv", "--conflicts", "limits.csv")
    return Setting(shared, (agents[0], agents[1]), words)


def rides():
    chance = np.random.default_rng(6)
    squares = [[number % 2 for number in range(14)], [5 + number % 3 // 2 for number in range(14)]]
    agents = [
        lines(
            ("id", "lat,lon", "to_lat,to_lon", "epsilon"),
            *zip(IDS, places(chance, squares[0]), places(chance, squares[1]), MIXED * 3, strict=False),
        )
        for _ in range(2)
    ]
    words = ("--pairs", "--origin", "40.7,-74", "--edge", 1000, "--conflicts", "limits.csv")
    return Setting({**CONFLICTS}, (agents[0], agents[1]), words)


SETTINGS: dict[str, Callable[[], Setting]] = {
    "city": lambda: city(("1",) * 5, limits=False),
    "city of the curious": lambda: city(POSITIVE, limits=True),
    "city with limits": lambda: city(MIXED, limits=True),
    "city with lists": lambda: city(MIXED, "--interest", 4, limits=False),
    "crowd": crowd,
    "conference": conference,
    "table": table,
    "scores": scores,
    "bids": bids,
    "partners": lambda: partners(MIXED),
    # Of equal ε, so that agents of one region report, and bid, the same.
    "partners of one budget": lambda: partners(("1",) * 5),
    "rides": rides,
}


def fits(method, name):
    """Say whether a method takes a setting: noise on places needs places, and an ε above 0."""
    if name == "crowd":
        return METHODS[method].matcher is not None
    if name in ("partners", "partners of one budget", "rides"):
        return METHODS[method].pairs
    return name in ("city", "city of the curious") or not METHODS[method].located


SEEN: list[pm.Workspace] = []


def keep_problem(workspace, settings, trace):
    """Prepare a method that lets the test have the problem that the command has made of its files."""
    SEEN.append(workspace)
    return pm.METHODS["random"].prepare(workspace, settings, trace)


SPY = pm.Method("spy", "keeps the problem", keep_problem, spends=False, units=True, pairs=True)


@pytest.fixture(scope="module")
def both(request, tmp_path_factory):
    """Return a setting, with two folders of its files and the workspaces that the command makes of them."""
    setting, made = SETTINGS[request.param](), []
    for agents in setting.agents:
        folder = tmp_path_factory.mktemp("files")
        for file, text in {**setting.shared, "agents.csv": agents}.items():
            (folder / file).write_text(text)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pm.METHODS, "_methods", dict(pm.METHODS))
            command(setting, folder, f"{__name__}:SPY", "spy.csv")
        made.append((folder, SEEN.pop()))
    return Both(setting, *zip(*made, strict=True))


def command(setting, folder, method, out):
    """Run the command; return what it writes as JSON without what is said not to be published."""
    files = ("agents.csv", *(("resources.csv",) if "resources.csv" in setting.shared else ()))
    words = (*setting.words, "--method", method, "--seed", 7, "--out", out, "--json", "figures.json")
    result = run("match", *files, *words, folder=folder)
    assert result.returncode == 0, result.stderr
    figures = json.loads((folder / "figures.json").read_text())
    for private in figures.pop("not_to_be_published"):
        *above, last = private.split(".")
        part = figures
        for key in above:
            part = part[key]
        del part[last]
    return figures


def public(matching):
    """Return all of a matching that any observer may see, in bytes."""
    names = ("resource_of", "epsilon", "charged")
    arrays = {name: np.ascontiguousarray(getattr(matching, name)).tobytes() for name in names}
    assert matching.epsilon_is_public
    assert matching.trace is None or len(matching.trace)
    return {
        **arrays,
        "pairs": matching.pairs,
        "several": matching.units.tobytes(),
        "trace": None if matching.trace is None else [part.tobytes() for part in astuple(matching.trace)],
        "guarantee": matching.guarantee,
        "rounds": matching.rounds,
        "repr": repr(matching),
    }


@pytest.mark.filterwarnings("ignore::palmatch.errors.MeaninglessSetting")
@pytest.mark.parametrize(
    ("both", "method"),
    [(name, method) for name, method in product(SETTINGS, METHODS) if fits(method, name)],
    indirect=["both"],
)
def test_with_the_same_reports_everything_public_is_the_same_whatever_agents_are(both, method):
    one, other = (workspace.problem for workspace in both.workspaces)
    assert one.regions == other.regions
    assert one.region_index.tolist() == other.region_index.tolist()
    differ = (one.true_utility() != other.true_utility()).any(axis=1)
    assert differ.sum() > one.agents // 2, "the two problems hardly differ"
    here, there = (pm.prepare(workspace, method, trace=True) for workspace in both.workspaces)
    # Among partners few reports lead to a tie that anything hangs on.
    for seed in range(20 if "--pairs" in both.setting.words else 3):
        with forced_reports(seed):
            assert public(here.play(seed)) == public(there.play(seed))
    with forced_reports(7):
        figures = [json.dumps(command(both.setting, folder, method, both.setting.out)) for folder in both.folders]
    assert figures[0] == figures[1]
    files = [(folder / both.setting.out).read_bytes() for folder in both.folders]
    assert files[0] == files[1]
