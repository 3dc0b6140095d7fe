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
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import floor, ldexp
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from palmatch.data.points import Points
from palmatch.device.distribution import GRID
from palmatch.device.ledger import MAX_UNITS, UNIT_BITS, Charge, Limits, Now, Store, device_clock
from palmatch.domains import mobility
from palmatch.errors import InputError
from palmatch.guarantee import FRESH_RANDOMNESS, region_only, simulated
from palmatch.matching import Guarantee, Matching, format_epsilon
from palmatch.mechanisms.channel import Channel, make_channel
from palmatch.methods import METHODS, Settings, Workspace
from palmatch.methods.opening import priors_of
from palmatch.methods.reports import ReportPlan, reporting, sample_reports
from palmatch.methods.results import finished, make_matching
from palmatch.problem import FloatArray, IntArray, Problem
from palmatch.streams import REPORT, draws, stream

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
    at:
        (latitude, longitude) of its region's representative.
    cells, chances:
        The cell of each possible type of the region, and the chance over GRID of the report from each cell; none
        before it has reported.
    """

    at: tuple[float, float]
    cells: bytes = b""
    chances: tuple[int, ...] = ()

    def packed(self) -> str:
        """Return it as JSON."""
        return json.dumps([*self.at, b64encode(self.cells).decode(), *self.chances], separators=(",", ":"))

    @classmethod
    def unpacked(cls, text: str | None) -> Self | None:
        """Return what `packed` gave; None for no open request."""
        if not text:
            return None
        north, east, cells, *chances = json.loads(text)
        return cls((north, east), b64decode(cells), tuple(chances))

    def channel(self, workspace: Workspace, region: int, prior: FloatArray) -> Channel:
        """Return the channel's column of the report, with the posterior means for this matching's resources."""
        view = workspace.regions[region]
        if not self.chances:
            return make_channel(view, np.zeros(len(prior), dtype=np.int64), np.full((1, 1), GRID), prior=prior)
        cells = np.frombuffer(zlib.decompress(self.cells), dtype="<u2").astype(np.int64)
        return make_channel(view, cells, np.array(self.chances, dtype=np.int64)[:, None], prior=prior)


class Session:
    """Matchings of one service, over any time: reports are drawn once and stored, budgets hold over all of them.

    A request begins when an id without an open one is first given to `match`, and ends by `end`. Its place is read when
    it begins; what is given as the place of a waiting agent later is not looked at. A new place is a new request, which
    is charged. Any number of processes and sessions may share a store.

    Formal guarantees
    -----------------
    The report of a request is drawn from a channel that keeps its ε, chosen from what is public and stored before, and
    is on the disk with its charge before anything is done with it. It is never drawn again: what comes later is a
    function of stored reports, public data and fresh public randomness. With resources that are listed at public places
    and times the whole sequence of requests is an adaptive composition of reports, whose ε add up by agent to at most
    the budget in any window of the period (and to the lifetime budget in all). Whether a budget is spent follows from
    what is public.

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
    edge, spacing, origin, alpha, interest, likely:
        As in `palmatch.mobility.problem`; edge, spacing and origin stay as they are for the life of a store.
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
        when_spent: Literal["region", "refuse"] = "region",
        public_resources: bool = False,
        seed: int | None = None,
        clock: Callable[[], Now] = device_clock,
    ) -> None:
        if METHODS.find(method).matcher is None:
            known = ", ".join(name for name, one in METHODS.items() if one.matcher is not None)
            raise InputError(f"A session stores one report a request, and {method} has none: choose from {known}.")
        if not 0 <= epsilon <= 1e6:
            raise InputError(f"Expected epsilon from 0 to 1000000, got epsilon={epsilon}.")
        if when_spent not in ("region", "refuse"):
            raise InputError(f"Expected when_spent to be 'region' or 'refuse', got when_spent={when_spent!r}.")
        self.budget, self.epsilon, self.method = budget or Budget(7), epsilon, method
        self._when_spent, self._public_resources, self._seed = when_spent, public_resources, seed
        self._places = {"edge": edge, "spacing": spacing, "origin": origin, "alpha": alpha, "likely": likely}
        self._interest = interest
        # Where requests are that have not reported yet: private, and in memory alone.
        self._unreported: dict[str, tuple[float, float]] = {}
        self._calls = 0
        # The store knows one thread.
        self._thread = ThreadPoolExecutor(1, "palmatch session")
        self._store = self._thread.submit(Store, store, limits=self.budget.limits, clock=clock).result()
        try:
            partition = f"squares of {edge:g} m, possible types every {spacing:g} m, from {origin[0]:g}, {origin[1]:g}"
            self._thread.submit(self._store.pin, "partition", partition).result()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
        """Match everybody who waits now.

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
        return self._thread.submit(self._match, agents, resources, ids, conflicts, conflicts_are_public).result()

    async def match_async(
        self,
        agents: mobility.Places,
        resources: mobility.Places,
        *,
        ids: Sequence[str] | None = None,
        conflicts: Iterable[tuple[str, str]] = (),
        conflicts_are_public: bool = False,
    ) -> Matching:
        """Match in a thread of its own, as `match` does; one call at a time."""
        waiting = self._thread.submit(self._match, agents, resources, ids, conflicts, conflicts_are_public)
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
        return self._thread.submit(self._end, list(dict.fromkeys(ids))).result()

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
        return ldexp(self._thread.submit(self._store.remaining_of, [agent]).result()[0], -UNIT_BITS)

    @property
    def share(self) -> float:
        """What a request spends at most, in ε: exactly what is charged."""
        limits = self.budget.limits
        return ldexp(min(_units(self.epsilon), limits.lifetime, limits.per_period or 0), -UNIT_BITS)

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee over the whole sequence, or of each request by itself where resources are not public."""
        found = _sequence(self.budget) if self._public_resources else _each_request(self.share)
        if self.share == 0:
            found = region_only("no request has a budget")
        found = replace(
            found,
            assumptions=_ASSUMPTIONS,
            partition=f"squares of {self._places['edge']:g} m on a grid that is fixed for the whole Earth",
            not_covered=_NOT_COVERED,
        )
        return found if self._seed is None else simulated(found)

    # --- in the session's own thread ---

    def _end(self, ids: Sequence[str]) -> int:
        known = self._store.kept_of([_name(agent) for agent in ids])
        ended = [
            Charge(agent, 0, {_name(agent): ""}, {_name(agent): text})
            for agent, text in zip(ids, known, strict=True)
            if text
        ]
        for charge in ended:
            self._unreported.pop(charge.owner, None)
        return sum(self._store.charge_all(ended, purpose="request ended"))

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
        given = mobility.as_points(agents, "agents", "agents")
        given = given if ids is None else replace(given, ids=tuple(ids))
        cars = mobility.as_points(resources, "resources", "resources")
        if given.edge is not None:
            raise InputError(f"{given.source}: expected no column edge, since the squares of a session are its own.")
        self._calls += 1
        names, charged = [_name(agent) for agent in given.ids], np.zeros(len(given.ids), dtype=np.int64)
        while True:
            known = self._store.kept_of(names)
            requests = [Request.unpacked(text) for text in known]
            played = self._played(given, requests)
            if not (len(played.rows) and len(cars.ids)):
                return _nothing(given, cars, charged, self.guarantee, self.method)
            problem = self._problem(given, cars, played, conflicts)
            workspace = Workspace(problem)
            plan = reporting(workspace, Settings(epsilon=0.0))
            written = self._report(workspace, plan, played, [known[row] for row in played.rows])
            charged[played.rows] += np.where(written, played.units, 0)
            requests = [Request.unpacked(text) for text in self._store.kept_of([names[row] for row in played.rows])]
            # Where another process was faster, what it has stored is used.
            if all(requests) and all(request.at == self._at for request in requests):
                break
        raise NotImplementedError
