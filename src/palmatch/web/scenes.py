"""What the explorer shows, as plain numbers: a map, and games on it, played when they are asked for and kept.

A scene is a simulation: all positions are in this process, and figures computed from them are marked as not to be
published. Nothing in here knows of HTTP or of live games.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from math import isfinite
from pathlib import Path
from threading import Lock
from typing import Any, Generic, TypeVar

import numpy as np

from palmatch.data import city
from palmatch.data.city import crowd
from palmatch.data.tlc import read_trips
from palmatch.domains import mobility
from palmatch.domains.mobility import City, Points, Square
from palmatch.errors import InputError
from palmatch.matchers.optimal import MOST_PAIRS
from palmatch.matching import Matching
from palmatch.methods import METHODS, PreparedMethod, Settings, Workspace, prepare
from palmatch.methods.baselines import optimal_welfare
from palmatch.problem import FloatArray, Problem
from palmatch.studies.compare import compare
from palmatch.studies.limit import HELP, LIMIT
from palmatch.studies.reproduce import complete_windows, mobility_of_trips

# So many scenes, and so many prepared games of each, are kept; the longest unused one goes first.
_MOST_SCENES, _MOST_GAMES = 6, 24

# Beyond this many agents a bounded number of interests keeps a game to a second.
_MANY, _INTEREST = 1000, 20

# Beyond this many pairs the optimum takes longer than a page can wait, and a chart longer still.
_OPTIMUM_PAIRS, CHART_PAIRS = 4_000_000, 1_000_000

# The chart: its budgets, its methods, the games of each.
EPSILONS, _RUNS = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0), 4
CHART = ("once", "hungarian-once", "published", "hungarian-region")

Value = TypeVar("Value")


class Cache(Generic[Value]):
    """The last few results, by their arguments; each is computed once, also when it is asked for twice at a time."""

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, Lock()
        self._values: OrderedDict[Hashable, tuple[Lock, list[Value]]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return what `make` gave for this key."""
        with self._lock:
            own, found = self._values.setdefault(key, (Lock(), []))
            self._values.move_to_end(key)
            while len(self._values) > self._most:
                self._values.popitem(last=False)
        with own:
            if not found:
                found.append(make())
            return found[0]


@dataclass(frozen=True, slots=True)
class Choice:
    """What a visitor has chosen; everything on the page follows from it."""

    method: str = "once"
    epsilon: float = 1.0
    edge: float = 1000.0
    vehicles: float = 1.0
    hour: float = 8.0
    agents: int = 0
    seed: int = 1

    @classmethod
    def of(cls, query: dict[str, str]) -> Choice:
        """Return the choice that a link states, refusing what means nothing."""
        numbers: dict[str, Any] = {}
        for name, text in query.items():
            if name == "method":
                numbers[name] = METHODS.find(text).name
            elif name in ("agents", "seed"):
                numbers[name] = _whole(name, text)
            elif name in cls.__dataclass_fields__:
                numbers[name] = _number(name, text)
            else:
                raise InputError(f"There is no setting {name!r}.")
        return cls(**numbers)


_RANGES = {
    "epsilon": (0.0, 50.0),
    "edge": (200.0, 8000.0),
    "vehicles": (0.1, 4.0),
    "hour": (0.0, 24.0),
    "agents": (0, 20_000),
    "seed": (0, 2**53),
}


def _number(name: str, text: str) -> float:
    low, high = _RANGES[name]
    try:
        value = float(text)
    except ValueError:
        raise InputError(f"Expected a number for {name}.") from None
    if not low <= value <= high:
        raise InputError(f"Expected {name} from {low:g} to {high:g}.")
    return value


def _whole(name: str, text: str) -> int:
    value = _number(name, text)
    if not value.is_integer():
        raise InputError(f"Expected a whole number for {name}.")
    return int(value)


@dataclass(frozen=True, slots=True)
class Source:
    """Where agents and vehicles come from: the synthetic city, two files, or taxi records."""

    agents: Points | None = None
    vehicles: Points | None = None
    name: str = "the synthetic city"
    streets: tuple[FloatArray, ...] = ()

    @classmethod
    def of_trips(cls, path: Path, at: datetime | None) -> Source:
        """Return the requests of a half minute of taxi records, and as many vehicles."""
        if at is None:
            stretches = complete_windows(read_trips(path), seconds=30.0)
            if not stretches:
                raise InputError(f"{path.name} holds no half minute without a gap.")
            at = stretches[0][0]
        batch = mobility_of_trips(path, [at]).batches[0]
        agents, vehicles = (
            Points(path.name, tuple(map(str, range(len(places)))), places[:, 0], places[:, 1], None, None, ())
            for places in (batch.requests, batch.vehicles)
        )
        return cls(agents, vehicles, f"{path.name}, {batch.name}")

    def places(self, choice: Choice) -> tuple[Any, Any]:
        """Return agents and vehicles."""
        if self.agents is not None and self.vehicles is not None:
            return self.agents, _share(self.vehicles, choice)
        if choice.agents:
            made_up = crowd(choice.agents, seed=choice.seed)
            return made_up.requests, _some(made_up.vehicles, choice)
        morning = city.batch(choice.hour, seed=choice.seed)
        return morning.requests, _some(morning.vehicles, choice)


def _some(vehicles: FloatArray, choice: Choice) -> FloatArray:
    """Return a share of the vehicles, or all and some more near them, drawn with the scene's seed."""
    generator = np.random.Generator(np.random.PCG64([choice.seed, 7]))
    wanted = max(1, round(choice.vehicles * len(vehicles)))
    order = generator.permutation(len(vehicles))
    if wanted <= len(vehicles):
        return vehicles[np.sort(order[:wanted])]
    more = vehicles[generator.integers(len(vehicles), size=wanted - len(vehicles))]
    return np.vstack((vehicles, more + generator.normal(scale=0.002, size=more.shape)))


def _share(vehicles: Points, choice: Choice) -> Points:
    """Return a share of the vehicles of a file, the first ones of a fixed shuffle; never more than there are."""
    count = len(vehicles.ids)
    wanted = max(1, round(min(choice.vehicles, 1.0) * count))
    keep = np.sort(np.random.Generator(np.random.PCG64(7)).permutation(count)[:wanted])
    return replace(
        vehicles,
        ids=tuple(vehicles.ids[place] for place in keep),
        latitude=vehicles.latitude[keep],
        longitude=vehicles.longitude[keep],
    )


@dataclass(slots=True)
class Scene:
    """One map with its agents and vehicles, and the games that were prepared on it."""

    problem: Problem
    workspace: Workspace
    optimum: float | None
    games: Cache[PreparedMethod] = field(default_factory=lambda: Cache(_MOST_GAMES))
    lock: Lock = field(default_factory=Lock)


class Scenes:
    """All scenes of one explorer."""

    def __init__(self, source: Source | None = None) -> None:
        self.source = source or Source()
        self._scenes: Cache[Scene] = Cache(_MOST_SCENES)
        self._kept_losses: Cache[dict[str, Any]] = Cache(len(EPSILONS) * _MOST_SCENES)

    def scene(self, choice: Choice) -> Scene:
        """Return the scene of a choice; method and ε do not change it."""
        key = replace(choice, method="", epsilon=0.0)
        return self._scenes.get(key, lambda: self._made(choice))

    def _made(self, choice: Choice) -> Scene:
        agents, vehicles = self.source.places(choice)
        problem = mobility.problem(agents, vehicles, edge=choice.edge)
        if problem.agents > _MANY:
            problem = mobility.problem(agents, vehicles, edge=choice.edge, interest=_INTEREST)
        pairs = problem.agents * problem.resources
        best = optimal_welfare(problem) if pairs <= min(_OPTIMUM_PAIRS, MOST_PAIRS) else None
        return Scene(problem, Workspace(problem), best)

    def map(self, choice: Choice) -> dict[str, Any]:
        """Return the map: where agents and vehicles are, and the squares, all in degrees."""
        problem = self.scene(choice).problem
        domain = problem.domain
        assert isinstance(domain, City)
        given = self.source.agents is not None
        return {
            "source": self.source.name,
            "agents": _degrees(domain, problem.truth[:, :2]),
            "vehicles": _degrees(domain, domain.vehicles),
            "agent_ids": problem.agent_ids if given else [],
            "vehicle_ids": problem.resource_ids if given else [],
            "region": problem.region_index.tolist(),
            "squares": [_square(domain, region) for region in problem.regions],
            "streets": [street.round(6).tolist() for street in self.source.streets],
            "outline": city.outline().round(6).tolist() if not (given or choice.agents) else [],
        }

    def play(self, choice: Choice) -> tuple[dict[str, Any], bytes]:
        """Play one game; return its figures, and its steps as whole numbers (see `packed`)."""
        scene = self.scene(choice)
        settings = Settings(epsilon=choice.epsilon)
        # Preparing a method fills in what methods share, so that it is done by one thread at a time.
        with scene.lock:
            ready = scene.games.get(
                (choice.method, choice.epsilon),
                lambda: prepare(scene.workspace, choice.method, settings=settings, trace=True),
            )
        matching = ready.play(choice.seed)
        return _figures(scene, matching), packed(matching)

    def losses(self, choice: Choice) -> dict[str, Any]:
        """Return what the methods of the chart lose with this ε, and the least that any could; it takes seconds.

        As the limit does, this is about crowds drawn from the public prior: as many agents in the same squares.
        """
        return self._kept_losses.get(replace(choice, method=""), lambda: self._compute_losses(choice))

    def _compute_losses(self, choice: Choice) -> dict[str, Any]:
        problem = self.scene(choice).problem
        if problem.agents * problem.resources > CHART_PAIRS:
            raise InputError(f"The chart is for at most {CHART_PAIRS:,} pairs of agents and vehicles.")
        found = compare(problem, (*CHART, LIMIT), epsilon=choice.epsilon, runs=_RUNS, seed=choice.seed)
        return {"runs": _RUNS, "loss": {row.method: row.loss_mean for row in found.rows}}


def methods() -> list[dict[str, Any]]:
    """Return the facts of every method that can be shown."""
    facts = ("name", "help", "notion", "spends", "reveals", "centre", "rounds")
    return [{name: getattr(method, name) for name in facts} for method in METHODS.values()]


def chart_lines() -> list[dict[str, str]]:
    """Return the lines of the chart, with their words."""
    return [{"method": LIMIT, "help": HELP}, *({"method": name, "help": METHODS[name].help} for name in CHART)]


def _degrees(domain: City, metres: FloatArray) -> list[list[float]]:
    degrees: list[list[float]] = domain.degrees(metres).round(6).tolist()
    return degrees


def _square(domain: City, region: object) -> dict[str, Any]:
    assert isinstance(region, Square)
    low, high = mobility.bounds_of(
        np.array([[region.column, region.row]], dtype=np.float64), region.edge, domain.origin
    )
    return {"name": str(region), "low": low[0].round(6).tolist(), "high": high[0].round(6).tolist()}


def _figures(scene: Scene, matching: Matching) -> dict[str, Any]:
    guarantee = matching.guarantee
    return {
        "method": matching.method,
        "agents": scene.problem.agents,
        "vehicles": scene.problem.resources,
        "matched": matching.matched,
        "rounds": matching.rounds,
        "welfare": matching.welfare,
        "optimum": scene.optimum,
        "loss": None if scene.optimum is None else 1 - matching.welfare / scene.optimum,
        "guarantee": asdict(guarantee) | {"epsilon": guarantee.epsilon if isfinite(guarantee.epsilon) else None},
        "not_to_be_published": ["welfare", "optimum", "loss"],
    }


def packed(matching: Matching) -> bytes:
    """Return the holders and the steps of a game as 32-bit numbers, least significant byte first.

    First the numbers of agents and of rows; then each agent's vehicle (-1: none); then for the rows the columns step,
    agent, resource and outcome; then the offers as 32-bit floating-point numbers.
    """
    trace = matching.trace
    columns = [] if trace is None else [trace.step, trace.agent, trace.resource, trace.outcome]
    rows = 0 if trace is None else len(trace)
    parts = [np.array([len(matching.resource_of), rows]), matching.resource_of, *columns]
    numbers = b"".join(np.ascontiguousarray(part, dtype="<i4").tobytes() for part in parts)
    return numbers + (b"" if trace is None else np.ascontiguousarray(trace.offer, dtype="<f4").tobytes())
