"""Matchings that follow one another, for a service: one stored report a request, and a budget for each agent.

A request has one place, which is read when it begins. Its report is drawn once, and is in the store with the chances of
the channel that it was drawn from before it is used. What follows, in this matching and in all later ones, is computed
from the store and from what is public: post-processing. This module knows no true utility, and writes no place.
"""

from __future__ import annotations

import asyncio
import json
import os
import zlib
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import floor, ldexp
from typing import Any, Literal, NamedTuple, Self, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from palmatch.device.distribution import GRID
from palmatch.device.ledger import MAX_UNITS, UNIT_BITS, Charge, Entry, Limits, Now, Store, device_clock
from palmatch.domains import mobility
from palmatch.domains.reports import report_columns
from palmatch.domains.zones import Partition, RoadCity, Roads, ZonedCity
from palmatch.errors import InputError
from palmatch.guarantee import SENTENCES, region_only, simulated, with_prior
from palmatch.matchers.lists import MatchOutcome
from palmatch.matching import Guarantee, Matching, format_epsilon
from palmatch.mechanisms.channel import Channel, constant_channel, make_channel
from palmatch.methods import METHODS, Settings, Workspace, make_matching
from palmatch.methods.reports import Matcher, Mechanism, ReportPlan, priors_of, sample_reports
from palmatch.problem import FloatArray, IntArray, Problem
from palmatch.regions.tables import RegionTables, RegionView
from palmatch.streams import REPORT, Randomness, draws, stream

_Value = TypeVar("_Value")

_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True)
class Budget:
    """What each agent may spend: ε in any window of a period, and over its lifetime.

    Attributes
    ----------
    epsilon:
        In any window of the length `per`, whenever it begins.
    per:
        A number with s, min, h or d, such as "7d".
    lifetime:
        In all; no such limit unless given.

    Examples
    --------
    >>> import palmatch as pm
    >>> pm.Budget(7, per="7d").seconds
    604800

    References
    ----------
    [Rogers et al. (NIPS 2016)][]: privacy filters.
    """

    epsilon: float
    per: str = "7d"
    lifetime: float | None = None

    def __post_init__(self) -> None:
        """Refuse what is no budget."""
        for name, value in (("epsilon", self.epsilon), ("lifetime", self.lifetime)):
            if value is not None and not 0 <= value <= 1e6:
                raise InputError(f"Expected a budget of {name} from 0 to 1000000, got {name}={value}.")
        if self.seconds < 1:
            raise InputError(f"Expected a period of at least 1s, got per={self.per!r}.")

    @property
    def seconds(self) -> int:
        """The length of the period."""
        number = self.per.rstrip("smindh")
        unit = self.per.removeprefix(number)
        if not (number.isascii() and number.isdigit() and unit in _SECONDS):
            raise InputError(f'Expected a period such as "30min", "12h" or "7d", got per={self.per!r}.')
        return int(number) * _SECONDS[unit]

    @property
    def limits(self) -> Limits:
        """The same in units of the ledger, rounded down."""
        lifetime = MAX_UNITS if self.lifetime is None else _units(self.lifetime)
        return Limits(lifetime, _units(self.epsilon), self.seconds)


def _units(epsilon: float) -> int:
    """Return the most units that an ε has room for: as many are played with as are charged."""
    return floor(ldexp(epsilon, UNIT_BITS))


class Request(NamedTuple):
    """What the store has of an open request: all of it public.

    Attributes
    ----------
    at, region:
        (latitude, longitude) of its region's representative, and the region's name.
    chances:
        The chance over GRID of the report from each possible type of the region, compressed; none before it has
        reported.
    """

    at: tuple[float, float]
    region: str
    chances: bytes = b""

    def packed(self) -> str:
        """Return it as JSON."""
        return json.dumps([*self.at, self.region, b64encode(self.chances).decode()], separators=(",", ":"))

    @classmethod
    def unpacked(cls, text: str | None) -> Self | None:
        """Return what `packed` gave; None for no open request."""
        if not text:
            return None
        north, east, region, chances = json.loads(text)
        return cls((north, east), region, b64decode(chances))

    def reported(self, channel: Channel, report: int) -> Self:
        """Return the request with the column of its report in the channel that it was drawn from."""
        return self._replace(chances=zlib.compress(channel.chances[channel.cell_of, report].astype("<i8").tobytes()))

    def channel(self, region: RegionView, prior: FloatArray) -> Channel:
        """Return the report as a channel of its own, with the posterior means for this matching's resources."""
        if not self.chances:
            return constant_channel(region, prior=prior)
        chances = self.likelihood()
        return make_channel(region, np.arange(len(chances)), chances[:, None], prior=prior)

    def likelihood(self) -> IntArray:
        """Return the chance over GRID of the report from each possible type."""
        return np.frombuffer(zlib.decompress(self.chances), dtype="<i8").astype(np.int64)


class Session:
    """Matchings of one service, over any time: reports are drawn once and stored, budgets hold over all of them.

    A request begins when an id without an open one is first given to `match`, and ends by `end`. Its place is read when
    it begins; what is given as the place of a waiting agent later is not looked at. A new place is a new request, which
    is charged. Any number of processes and sessions may share a store.

    Formal guarantees
    -----------------
    The report of a request is drawn from a channel that keeps its ε, chosen from what is public and stored before, and
    is on the disk with its charge before anything is done with it. It is never drawn again: what comes later, the prior
    that is learnt from reports too, is a function of stored reports, public data and fresh public randomness. With
    resources that are listed at public places and times the whole sequence of requests is an adaptive composition of
    reports, whose ε add up by agent to at most the budget in any window of the period (and to the lifetime budget in
    all). Whether a budget is spent follows from what is public.

    Parameters
    ----------
    store:
        The file of budgets and open requests; made when there is none.
    budget:
        What each agent (id) may spend.
    epsilon:
        What a request spends, unless the agents' column `epsilon` says otherwise; never more than the budget.
    method:
        A method of one report.
    edge, spacing, origin, alpha, interest, likely, zones, roads:
        As in `palmatch.mobility.problem`; squares or zones and spacing stay as they are for the life of a store.
    when_spent:
        What happens to a request of an agent that has not enough left: it is matched by its "region" alone (ε = 0), or
        "refuse"d: it gets nothing in this matching.
    public_resources:
        Whether all resources are listed at public places and times, as chargers are. A vehicle that is free again where
        its passenger went is not: the guarantee is then of each request by itself.
    seed:
        Repeats a sequence that begins with an empty store: a simulation.
    clock:
        What budgets are measured by; a simulation gives its own.

    Examples
    --------
    >>> import palmatch as pm
    >>> from tempfile import TemporaryDirectory
    >>> night = pm.data.city.batch(5.0)
    >>> ids = [f"agent {n}" for n in range(len(night.requests))]
    >>> with TemporaryDirectory() as folder, pm.Session(store=f"{folder}/budgets.ledger", edge=2000) as session:
    ...     first = session.match(night.requests, night.vehicles, ids=ids)
    ...     again = session.match(night.requests, night.vehicles, ids=ids)
    >>> first.matched, bool(first.epsilon.max() <= 1.0), float(again.epsilon.sum())
    (17, True, 0.0)

    References
    ----------
    - [Rogers et al. (NIPS 2016)][]: privacy filters.
    - Page "For engineers", [A service][].
    """

    def __init__(
        self,
        *,
        store: str | os.PathLike[str],
        budget: Budget | None = None,
        epsilon: float = 1.0,
        method: str = "once",
        edge: float = 1000.0,
        spacing: float = 100.0,
        origin: tuple[float, float] = mobility.ORIGIN,
        alpha: float = 4000.0,
        interest: int | None = None,
        likely: mobility.Places | None = None,
        zones: Partition | None = None,
        roads: Roads | None = None,
        when_spent: Literal["region", "refuse"] = "region",
        public_resources: bool = False,
        seed: int | None = None,
        clock: Callable[[], Now] = device_clock,
    ) -> None:
        self._mechanism, self._matcher = mechanism_and_matcher(method)
        if not 0 <= epsilon <= 1e6:
            raise InputError(f"Expected epsilon from 0 to 1000000, got epsilon={epsilon}.")
        if when_spent not in ("region", "refuse"):
            raise InputError(f"Expected when_spent to be 'region' or 'refuse', got when_spent={when_spent!r}.")
        if not hasattr(budget or Budget(7), "limits"):
            raise InputError(f"Expected a budget such as palmatch.Budget(7, per='7d'), got budget={budget!r}.")
        # Before there is a store that keeps them for good.
        mobility.check_metres(edge=edge, alpha=alpha, spacing=spacing)
        mobility.check_grid(np.array([float(edge)]), spacing)
        mobility.check_origin(origin)
        self.budget, self.epsilon, self.method = budget or Budget(7), epsilon, method
        self._when_spent, self._public_resources, self._seed = when_spent, public_resources, seed
        self._map: dict[str, Any] = {
            "edge": edge, "spacing": spacing, "origin": origin, "alpha": alpha, "likely": likely,
            "zones": zones, "roads": roads
        }  # fmt: skip
        self._interest = interest
        # Where requests are that have not reported yet: private, and in memory alone.
        self._unreported: dict[str, tuple[float, float]] = {}
        # The most units that any request of the store has spent: agents may bring more than `epsilon`.
        self._calls, self._most_spent = 0, 0
        # The last reports from each region, of requests that have ended too: public.
        self._reports: dict[str, deque[IntArray]] = {}
        # The store knows one thread.
        self._thread = ThreadPoolExecutor(1, "palmatch session")
        self._store = self._thread.submit(
            Store, store, limits=self.budget.limits, clock=clock, listen=self._listen
        ).result()
        try:
            # Every digit: squares that move by a metre between one request and the next would give away more than ε.
            squares = f"squares of {float(edge)!r} m from {float(origin[0])!r}, {float(origin[1])!r}"
            partition = f"{squares if zones is None else zones.digest}, possible types every {float(spacing)!r} m"
            self._thread.submit(self._store.pin, "partition", partition).result()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _submit(self, work: Callable[[], _Value]) -> Future[_Value]:
        """Have the store's thread do something, as long as the session is open."""
        try:
            return self._thread.submit(work)
        except RuntimeError:
            raise InputError("This session is closed: open its store in a new session.") from None

    def close(self) -> None:
        """Let go of the store; open requests stay open."""
        self._thread.submit(self._store.close).result()
        self._thread.shutdown()

    def match(
        self,
        agents: mobility.Places,
        resources: mobility.Places,
        *,
        ids: Sequence[str] | None = None,
        conflicts: Iterable[tuple[str, str]] = (),
        conflicts_are_public: bool = False,
    ) -> Matching:
        """Match all agents that wait now.

        Parameters
        ----------
        agents, resources:
            As in `palmatch.mobility.problem`, with ids: an id is an agent, for good. Resources may have capacities.
        ids:
            The agents' ids, where these are an array.
        conflicts:
            Pairs (agent id, resource id) that must not be matched, such as other plugs. They show in the matching, so
            that they have to be public, and say nothing about the place.
        conflicts_are_public:
            Says so; conflicts are refused without it.

        Returns
        -------
        Matching
            `epsilon` is what each agent was charged in this call. Utilities are those of the regions' representatives:
            the session knows no others that may be published.

        Raises
        ------
        InputError, LedgerError
            After a `LedgerError` no report was used that is not in the store.
        """
        return self._submit(lambda: self._match(agents, resources, ids, conflicts, conflicts_are_public)).result()

    async def match_async(
        self,
        agents: mobility.Places,
        resources: mobility.Places,
        *,
        ids: Sequence[str] | None = None,
        conflicts: Iterable[tuple[str, str]] = (),
        conflicts_are_public: bool = False,
    ) -> Matching:
        """Match in a thread of its own, one call at a time.

        Parameters
        ----------
        agents, resources:
            As in `match`, and so are the others.
        ids:
            The agents' ids.
        conflicts:
            Pairs that must not be matched.
        conflicts_are_public:
            Says that they are public.

        Returns
        -------
        Matching
            As of `match`.
        """
        waiting = self._submit(lambda: self._match(agents, resources, ids, conflicts, conflicts_are_public))
        return await asyncio.wrap_future(waiting)

    def end(self, ids: Iterable[str]) -> int:
        """End requests: their stored reports are never used again.

        Parameters
        ----------
        ids:
            Agents; those without an open request are passed over.

        Returns
        -------
        int
            How many requests were open.
        """
        if isinstance(ids, str):
            raise InputError(f"Expected a list of ids, got one text: write end([{ids!r}]).")
        names = list(dict.fromkeys(ids))
        return self._submit(lambda: self._end(names)).result()

    def remaining(self, agent: str) -> float:
        """Tell what an agent may still spend now, in ε; rounded down.

        Parameters
        ----------
        agent:
            Its id.

        Returns
        -------
        float
            Under both limits.
        """
        return ldexp(self._submit(lambda: self._store.remaining_of([agent])).result()[0], -UNIT_BITS)

    @property
    def share(self) -> float:
        """What a request spends at most, in ε: exactly what is charged."""
        limits = self.budget.limits
        return ldexp(min(_units(self.epsilon), limits.lifetime, limits.per_period or 0), -UNIT_BITS)

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee over the whole sequence, or of each request by itself where resources are not public."""
        most = max(self.share, ldexp(self._most_spent, -UNIT_BITS))
        found = _sequence(self.budget) if self._public_resources else _each_request(most)
        if most == 0:
            found = region_only("no request has a budget")
        found = replace(
            found,
            assumptions=SENTENCES["session"]["assumptions"],
            partition=(
                f"squares of {self._map['edge']:g} m on a grid that is fixed for the whole Earth"
                if self._map["zones"] is None
                else self._map["zones"].digest
            ),
            not_covered=SENTENCES["session"]["not_covered"],
        )
        if self._map["likely"] is not None:
            found = with_prior(found, getattr(self._map["likely"], "source", "the given likely places"))
        return found if self._seed is None else simulated(found)

    def reports(self) -> pl.DataFrame:
        """Return the reports of the store, up to 500 of each region, for `palmatch match --reports`.

        Returns
        -------
        DataFrame
            Columns region, channel and report: no ids, no times, no places.
        """
        known = self._submit(lambda: [(name, one) for name, every in self._reports.items() for one in every])
        return pl.DataFrame(report_columns(known.result()))

    # --- in the session's own thread ---

    def _listen(self, entry: Entry) -> None:
        """Take note of a report, once: of a request that begins or has reported."""
        # Another process may have ended the request that this place is of, and begun another one.
        self._unreported.pop(entry.agent, None)
        self._most_spent = max(self._most_spent, entry.units)
        for text in entry.kept.values():
            if entry.kind == "charged" and (request := Request.unpacked(text)) is not None:
                self._reports.setdefault(request.region, deque(maxlen=500)).append(request.likelihood())

    def _end(self, ids: Sequence[str]) -> int:
        ended = 0
        while ids:
            known = self._store.kept_of([_name(agent) for agent in ids])
            charges = [
                Charge(agent, 0, {_name(agent): ""}, {_name(agent): text})
                for agent, text in zip(ids, known, strict=True)
                if text
            ]
            done = self._store.charge_all(charges, purpose="request ended")
            # A request that another process has written meanwhile is ended as it is then.
            ended, ids = ended + sum(done), [one.owner for one, gone in zip(charges, done, strict=True) if not gone]
        return ended

    def _match(
        self,
        agents: mobility.Places,
        resources: mobility.Places,
        ids: Sequence[str] | None,
        conflicts: Iterable[tuple[str, str]],
        conflicts_are_public: bool,
    ) -> Matching:
        conflicts = tuple(conflicts)
        if conflicts and not conflicts_are_public:
            raise InputError(
                "Conflicts show in the matching: give only those that are public and say nothing about an agent's "
                "place, and say so with conflicts_are_public=True."
            )
        given = _with_ids(_points(agents, "agents"), agents, ids)
        cars = _points(resources, "resources")
        if given.edge is not None:
            raise InputError(f"{given.source}: expected no column edge, since the squares of a session are its own.")
        self._calls += 1
        names, charged = [_name(agent) for agent in given.ids], np.zeros(len(given.ids), dtype=np.int64)
        while True:
            known = self._store.kept_of(names)
            requests = [Request.unpacked(text) for text in known]
            places, units = self._offers(given, requests)
            rows = np.flatnonzero(units >= 0)
            if not (len(rows) and len(cars.ids)):
                return self._result(given, cars, rows, charged, None)
            workspace = Workspace(self._problem(given, cars, rows, places, units, conflicts))
            plan = self._mechanism(workspace, Settings(epsilon=0.0))
            chance = workspace.randomness(None if self._seed is None else stream(self._seed, self._calls))
            begun = _begin(workspace, plan, [requests[row] for row in rows], units[rows] > 0, chance)
            written = self._write(given, rows, known, requests, begun, units)
            charged += written.clip(0)
            # What another process has written meanwhile takes the place of what was drawn here.
            if (written >= 0).all():
                return self._result(given, cars, rows, charged, self._outcome(workspace, plan, begun, chance))

    def _offers(self, given: mobility.Points, requests: Sequence[Request | None]) -> tuple[FloatArray, IntArray]:
        """Return where each agent is as far as that is read, and what it may report with; -1 where it is refused.

        Of a request that has begun the place is that of its beginning, or its region's where that is not known.
        """
        places = np.column_stack((given.latitude, given.longitude))
        wanted = np.full(len(requests), self.epsilon) if given.epsilon is None else given.epsilon.copy()
        wanted[np.isnan(wanted)] = self.epsilon
        limits = self.budget.limits
        units = np.array([_units(min(one, 1e6)) for one in wanted.tolist()], dtype=np.int64)
        units = np.minimum(units, min(limits.lifetime, limits.per_period or 0))
        for row, (agent, request) in enumerate(zip(given.ids, requests, strict=True)):
            if request is not None:
                places[row] = request.at
                if request.chances or agent not in self._unreported:
                    units[row] = 0
                else:
                    places[row] = self._unreported[agent]
        asking = np.flatnonzero(units)
        left = np.array(self._store.remaining_of([given.ids[row] for row in asking]), dtype=np.int64)
        units[asking[left < units[asking]]] = -1 if self._when_spent == "refuse" else 0
        return places, units

    def _problem(
        self,
        given: mobility.Points,
        cars: mobility.Points,
        rows: IntArray,
        places: FloatArray,
        units: IntArray,
        conflicts: Sequence[tuple[str, str]],
    ) -> Problem:
        """Return the problem of the agents that are matched now; the types of those that have reported are public."""
        ids = tuple(given.ids[row] for row in rows)
        points = replace(
            given,
            ids=ids,
            latitude=places[rows, 0],
            longitude=places[rows, 1],
            epsilon=np.ldexp(units[rows].astype(np.float64), -UNIT_BITS),
            units=None if given.units is None else given.units[rows],
        )
        playing = set(ids)
        allowed = [pair for pair in conflicts if pair[0] in playing]
        told = {region: np.array(every) / GRID for region, every in self._reports.items()}
        return mobility.problem(
            points, cars, interest=self._interest, conflicts=allowed or None, reports=told, **self._map
        )

    def _write(
        self,
        given: mobility.Points,
        rows: IntArray,
        known: Sequence[str | None],
        requests: Sequence[Request | None],
        begun: Sequence[Request],
        units: IntArray,
    ) -> IntArray:
        """Store what is new, durably; return what each agent was charged, -1 where the store has changed meanwhile."""
        new = [(row, now) for row, now in zip(rows.tolist(), begun, strict=True) if now != requests[row]]
        charges = [
            Charge(
                owner=given.ids[row],
                units=int(units[row]) if now.chances else 0,
                keep={_name(given.ids[row]): now.packed()},
                expected={_name(given.ids[row]): known[row]},
            )
            for row, now in new
        ]
        accepted = self._store.charge_all(charges, purpose="request")
        written = np.zeros(len(given.ids), dtype=np.int64)
        for (row, now), charge, done in zip(new, charges, accepted, strict=True):
            written[row] = charge.units if done else -1
            if done and not now.chances:
                self._unreported[charge.owner] = (float(given.latitude[row]), float(given.longitude[row]))
        return written

    def _outcome(
        self, workspace: Workspace, plan: ReportPlan, requests: Sequence[Request], chance: Randomness
    ) -> tuple[Problem, MatchOutcome]:
        """Match by what is stored: the problem that is given to the matcher has no agent's place."""
        problem, regions = workspace.problem, workspace.regions
        types = _representatives(regions)[problem.region_index]
        public = workspace.with_types(replace(problem, types=types, truth=types, uncovered=()))
        priors = priors_of(problem, regions)
        keys = [(region, one) for region, one in zip(problem.region_index.tolist(), requests, strict=True)]
        number = {key: place for place, key in enumerate(dict.fromkeys(keys))}
        # Of a channel that has one report left.
        reported = np.zeros(len(keys), dtype=np.int64)
        told = replace(
            plan,
            channels=tuple(one.channel(regions[region], priors[region]) for region, one in number),
            region_of_channel=tuple(regions[region] for region, _ in number),
            channel_of=np.array([number[key] for key in keys]),
            cell=reported,
        )
        return public.problem, self._matcher(public, told, reported, chance.after_reports(), False)

    def _result(
        self,
        given: mobility.Points,
        cars: mobility.Points,
        rows: IntArray,
        charged: IntArray,
        found: tuple[Problem, MatchOutcome] | None,
    ) -> Matching:
        """Return the matching of all agents that were given, of whom those in `rows` were matched."""
        facts: dict[str, Any] = {
            "epsilon": np.ldexp(charged.astype(np.float64), -UNIT_BITS),
            "charged": (charged > 0).astype(np.int64),
            "guarantee": self.guarantee,
        }
        resource_of, utility = np.full(len(given.ids), -1, dtype=np.int64), np.zeros(len(given.ids))
        several, rounds = None, 0
        if found is not None:
            problem, outcome = found
            part = make_matching(problem, outcome.resource_of, **facts)
            resource_of[rows], utility[rows], rounds = part.resource_of, part.utility, outcome.rounds
            if part.several is not None:
                several = np.column_stack((rows[part.several[:, 0]], part.several[:, 1]))
        return Matching(
            self.method,
            resource_of,
            utility,
            rounds=rounds,
            agent_ids=given.ids,
            resource_ids=cars.ids,
            several=several,
            **facts,
        )


def _points(given: Any, role: Literal["agents", "resources"]) -> mobility.Points:
    """Read agents or resources, of which there may be none just now."""
    if not isinstance(given, mobility.Points) and len(given) == 0:
        return mobility.Points(role, (), np.empty(0), np.empty(0), None, None, ())
    return mobility.as_points(given, role, role)


def _with_ids(points: mobility.Points, given: Any, ids: Sequence[str] | None) -> mobility.Points:
    """Return agents under their ids: a number of a row, which is another agent's in the next call, is none."""
    named = isinstance(given, mobility.Points) or "id" in getattr(given, "columns", ())
    if ids is None and points.ids and not named:
        raise InputError("Expected agents with a column id, or ids=…: an id is an agent, whose budget it keeps.")
    if ids is None:
        return points
    if len(ids) != len(points.ids):
        raise InputError(f"Expected an id for each of {len(points.ids)} agents, got {len(ids)} ids.")
    return replace(points, ids=tuple(map(str, ids)))


def mechanism_and_matcher(method: str) -> tuple[Mechanism, Matcher]:
    """Return both parts of a method of one report, and refuse any other."""
    found = METHODS.find(method)
    if found.mechanism is None or found.matcher is None:
        known = ", ".join(name for name, one in METHODS.items() if one.mechanism is not None)
        raise InputError(f"A session stores one report a request, and {method} has none: choose from {known}.")
    return found.mechanism, found.matcher


def _name(agent: str) -> str:
    """Return what the store remembers an agent's open request by."""
    return f"request of {agent}"


def _representatives(regions: RegionTables) -> FloatArray:
    return np.array([region.types[region.representative] for region in regions])


def _begin(
    workspace: Workspace,
    plan: ReportPlan,
    requests: Sequence[Request | None],
    asking: NDArray[np.bool_],
    chance: Randomness,
) -> list[Request]:
    """Return the requests after this moment: those that ask draw a report where a channel tells anything."""
    problem, domain = workspace.problem, workspace.problem.domain
    assert isinstance(domain, mobility.City | ZonedCity | RoadCity)
    middles = domain.middles(workspace.problem.regions)
    drawn, begun = sample_reports(plan, draws(chance.private, 0, REPORT)), []
    for row, request in enumerate(requests):
        now, channel = request, plan.channels[int(plan.channel_of[row])]
        if now is None:
            north, east = middles[problem.region_index[row]].tolist()
            now = Request((north, east), str(problem.regions[problem.region_index[row]]))
        if asking[row] and channel.reports > 1:
            now = now.reported(channel, int(drawn[row]))
        begun.append(now)
    return begun


# --- the guarantee -------------------------------------------------------------------------------------------------


def _sequence(budget: Budget) -> Guarantee:
    """Return the guarantee of all requests together."""
    bound = f"ε = {format_epsilon(budget.epsilon)} for all its requests that report within any {budget.per}"
    if budget.lifetime is not None:
        bound += f", and ε = {format_epsilon(budget.lifetime)} for all its requests ever"
    return Guarantee(
        epsilon=budget.epsilon,
        delta=0.0,
        notion="PLDP",
        accountant="a sum over stored reports, by agent",
        statement=(
            "For any places of an agent's requests in the same regions, the probabilities of everything that is seen "
            f"of all matchings of this store differ by a factor of at most e^ε, with {bound}."
        ),
        applies_to=f"every agent, over any {budget.per}",
    )


def _each_request(share: float) -> Guarantee:
    """Return the guarantee of one request until it ends."""
    return Guarantee(
        epsilon=share,
        delta=0.0,
        notion="PLDP",
        accountant="one stored report",
        statement=(
            "For any two places of a request's region, the probabilities of everything that is seen of the matchings "
            f"until it ends differ by a factor of at most e^ε, ε = {format_epsilon(share)}. This is a guarantee of "
            "each request by itself: a resource that is free again where, or when, its agent's place decides shows "
            "that place in later matchings. List resources at public places and times, and say public_resources=True, "
            "for a guarantee over the whole sequence."
        ),
        applies_to="every request, until it ends",
    )
