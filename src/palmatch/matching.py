"""What every method returns: a `Matching`, with its `Guarantee` and, where asked for, a `Trace` of what is seen.

Records only. They know neither the problem nor how a matching is found.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from enum import IntEnum
from importlib import import_module
from math import isinf
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from palmatch.data.files import Library
from palmatch.domain import FloatArray, IntArray
from palmatch.errors import InputError

# What agents do in one step: agent, resource, offer.
Buffers: TypeAlias = tuple[IntArray, IntArray, FloatArray]


@dataclass(frozen=True, slots=True)
class Guarantee:
    """A guarantee: to whom, how strong, proved by what, under which assumptions.

    Attributes
    ----------
    epsilon, delta:
        The largest ε of any agent, and the δ of (ε, δ)-PLDP. `epsilon` is infinite where nothing is guaranteed.
    notion:
        The kind of privacy: "PLDP" (between the possible agents of a public region), "geo-indistinguishability", or
        "none".
    accountant:
        What adds up the cost: a name, or "nothing to add up" where nothing private is acted on.
    statement:
        One sentence for the agents concerned.
    assumptions:
        What has to be true for the statement to hold.
    partition:
        φ in words and numbers: the regions between whose possible agents the statement holds.
    applies_to:
        The agents to whom the statement applies; those in `uncovered` are excepted.
    not_covered:
        What it says nothing about.
    uncovered:
        Ids of agents to whom the statement does not apply.
    warnings:
        Settings under which the statement holds and says next to nothing.

    Examples
    --------
    >>> import palmatch as pm
    >>> rows = [[0.9, 0.3], [0.3, 0.9]]
    >>> problem = pm.table.problem(rows, ["here"] * 2, {"here": rows})
    >>> guarantee = pm.match(problem, "hungarian-region").guarantee
    >>> guarantee.notion, guarantee.epsilon, guarantee.delta
    ('PLDP', 0.0, 0.0)

    References
    ----------
    - [Danassis, Triastcyn, Faltings (AAMAS 2022)][], Sec. "Piecewise Local Differential Privacy (PLDP)": the
      definition.
    - [Kasiviswanathan et al. (2011)][]: local differential privacy.
    - [Andrés et al. (CCS 2013)][]: geo-indistinguishability.
    - Page "The guarantee", [What is assumed][] and [Why it holds][].
    """

    epsilon: float
    delta: float
    notion: str
    accountant: str
    statement: str
    assumptions: tuple[str, ...] = ()
    uncovered: tuple[str, ...] = ()
    partition: str = ""
    applies_to: str = "every agent that takes part"
    not_covered: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Outcome(IntEnum):
    """What one agent did in one step, as every observer sees it.

    Examples
    --------
    >>> import palmatch as pm
    >>> pm.Outcome.BACKS_OFF.name
    'BACKS_OFF'

    References
    ----------
    - [Danassis, Triastcyn, Faltings (AAMAS 2022)][], Sec. "Learning Rule": attempts, collisions, back-offs and looks.
    - [Bertsekas (1988)][]: bids.
    """

    HOLDS = 0  # attempted alone: the resource is its own from now on
    STAYS = 1  # attempted, collided, and will attempt again
    BACKS_OFF = 2  # attempted, collided, and gives way
    FREE = 3  # looked, found it free, and will attempt it in the next step
    TAKEN = 4  # looked, found it held or contested
    LEADS = 5  # bid, and its bid is the highest so far
    LOSES = 6  # bid, and another bid is higher
    REPORTS = 7  # told a centre its report; `resource` is the number of the report


@dataclass(frozen=True, slots=True)
class Trace:
    """What an observer sees: one row per agent and step, ordered by step, then by agent.

    Attributes
    ----------
    step:
        Counts from 1.
    agent, resource:
        Row numbers of the problem.
    outcome:
        What the agent did: an `Outcome`.
    offer:
        What was bid; 0 where nothing is bid.

    Examples
    --------
    >>> import palmatch as pm
    >>> rows = [[0.9, 0.3], [0.3, 0.9]]
    >>> problem = pm.table.problem(rows, ["here"] * 2, {"here": rows})
    >>> trace = pm.match(problem, "once", seed=1, trace=True).trace
    >>> [pm.Outcome(outcome).name for outcome in trace.outcome]
    ['LEADS', 'LEADS']

    References
    ----------
    - [Danassis, Triastcyn, Faltings (AAMAS 2022)][], Sec. "Privacy Accounting": the signals of an agent.
    - Page "The guarantee", [Why it holds][]: what is observed.
    """

    step: NDArray[np.int64]
    agent: NDArray[np.int64]
    resource: NDArray[np.int64]
    outcome: NDArray[np.int8]
    offer: NDArray[np.float64]

    def __repr__(self) -> str:
        return f"Trace({len(self.step):,} actions in {self.step.max(initial=0):,} steps)"

    @classmethod
    def of_reports(cls, reported: NDArray[np.int64]) -> Trace:
        """Return what a centre sees that is told every report.

        Parameters
        ----------
        reported:
            The number of each agent's report.

        Returns
        -------
        Trace
            A row for each agent.
        """
        agents = len(reported)
        return cls(
            step=np.ones(agents, dtype=np.int64),
            agent=np.arange(agents),
            resource=reported,
            outcome=np.full(agents, Outcome.REPORTS, dtype=np.int8),
            offer=np.zeros(agents),
        )

    def __len__(self) -> int:
        return len(self.step)


class TraceParts:
    """Collects what an observer sees of a game, step by step, into one `Trace`."""

    def __init__(self) -> None:
        self._parts: list[tuple[NDArray[np.generic], ...]] = []

    @staticmethod
    def room(rows: int) -> Buffers:
        """Return room for what so many agents do in one step: agent, resource, offer."""
        return np.zeros(rows, dtype=np.int64), np.full(rows, -1, dtype=np.int64), np.zeros(rows)

    def add(self, buffers: Buffers, step: int, outcome: IntArray) -> None:
        """Add one step; a resource below 0 stands for an agent that did nothing."""
        agent, resource, offer = buffers
        acted = np.flatnonzero(resource >= 0)
        acted = acted[np.argsort(agent[acted], kind="stable")]
        steps = np.full(len(acted), step, dtype=np.int64)
        self._parts.append((steps, agent[acted], resource[acted], outcome[acted].astype(np.int8), offer[acted]))

    def trace(self) -> Trace:
        """Return all steps."""
        if not self._parts:
            self.add(self.room(0), 0, np.empty(0, dtype=np.int64))
        return Trace(*(np.concatenate(column) for column in zip(*self._parts, strict=True)))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Matching:
    """The resource of each agent and what finding it cost. Every method returns one.

    Attributes
    ----------
    method, guarantee:
        The name of the method, and what it guarantees.
    resource_of:
        For each agent the row number of its resource, -1 where it goes without; of its first one where it has several.
    utility:
        What each agent truly gains from all its resources; 0 where it goes without.
    epsilon:
        What each agent's actions cost it, by the accountant named in `guarantee`. Not publishable where the accountant
        computes it from an agent's own utilities (`epsilon_is_public` is False); NaN where the notion does not apply.
    charged:
        How many of each agent's actions were charged.
    epsilon_is_public:
        Whether `epsilon` may be published.
    trace:
        What an observer saw, where it was asked for.
    library:
        What the agents came as, and what `to_frame` gives: "polars", "pandas" or "pyarrow".
    rounds:
        Synchronous steps until no agent had anything left to do; 0 for a centralised method.
    agent_ids, resource_ids:
        The problem's ids, in its order; row numbers stand for them where they are empty.
    several:
        All units (agent, resource), sorted, of a problem with capacities, demands or conflicts; None for any other,
        where `units` follows from `resource_of`.
    mutual:
        Whether resources are agents: each pair is then there twice, (one, other) and (other, one).

    Examples
    --------
    >>> import palmatch as pm
    >>> rows = [[0.9, 0.3], [0.3, 0.9]]
    >>> problem = pm.table.problem(rows, ["here"] * 2, {"here": rows})
    >>> pm.match(problem, "hungarian").pairs
    [('0', '0'), ('1', '1')]

    References
    ----------
    [Danassis, Triastcyn, Faltings (AAMAS 2022)][], Sec. "The Assignment Problem", and "PALMA's Privacy Cost" for why an
    ε that follows from an agent's own utilities is not published.
    """

    method: str
    resource_of: IntArray
    utility: FloatArray
    guarantee: Guarantee
    epsilon: FloatArray
    charged: IntArray
    rounds: int = 0
    epsilon_is_public: bool = True
    trace: Trace | None = None
    agent_ids: tuple[str, ...] = ()
    resource_ids: tuple[str, ...] = ()
    library: Library = "polars"
    several: IntArray | None = None
    mutual: bool = False

    def __repr__(self) -> str:
        rounds = f" in {self.rounds:,} rounds" if self.rounds else ""
        figures = "no privacy"
        if self.guarantee.notion != "none":
            figures = f"ε = {format_epsilon(self.guarantee.epsilon)}, δ = {format_epsilon(self.guarantee.delta)}"
        units = "" if self.several is None or self.mutual else f" with {self.filled:,} units"
        return (
            f"Matching({self.method}: {self.matched:,} of {len(self.resource_of):,} matched{units}{rounds}, {figures})"
        )

    @property
    def other(self) -> str:
        """What an agent is matched with, in a word."""
        return "partner" if self.mutual else "resource"

    @property
    def units(self) -> IntArray:
        """One row (agent, resource) for each unit, as row numbers, sorted."""
        if self.several is not None:
            return self.several
        matched = np.flatnonzero(self.resource_of >= 0)
        return np.column_stack((matched, self.resource_of[matched]))

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """(agent, resource) ids of every unit, in the problem's order."""
        return [(agent, resource) for agent, resource in zip(*self.columns(), strict=True) if resource is not None]

    def to_frame(self, library: Library | None = None) -> Any:
        """Return a frame with columns `agent` and `resource`, a row for every unit; null for an agent without any.

        Where agents are matched with each other the second column is `partner`.

        Parameters
        ----------
        library:
            "polars", "pandas" or "pyarrow"; what the agents came as unless given.

        Returns
        -------
        DataFrame or Table
            Of the library that was asked for.
        """
        wanted = library or self.library
        if wanted == "pandas":
            # Only a caller who has pandas asks for it.
            return import_module("pandas").DataFrame(dict(zip(("agent", self.other), self.columns(), strict=True)))
        owners, places = self._rows()
        agents, resources = (pl.Series(ids, dtype=pl.String) for ids in self._ids())
        numbers = pl.Series(places)
        frame = pl.DataFrame(
            {"agent": agents.gather(owners), self.other: resources.gather(numbers.set(numbers < 0, None))}
        )
        if wanted == "pyarrow":
            return frame.to_arrow()
        if wanted != "polars":
            raise InputError(f"Expected library 'polars', 'pandas' or 'pyarrow', got library={wanted!r}.")
        return frame

    def columns(self) -> tuple[list[str], list[str | None]]:
        """Return the ids of agents and of their resources: a row for every unit, None for an agent without any.

        Returns
        -------
        tuple of two lists
            Ids of agents, and of their resources.
        """
        owners, places = self._rows()
        agents, given = self._ids()
        # The last one is what an agent without any has: place -1.
        names: tuple[str | None, ...] = (*given, None)
        return [agents[owner] for owner in owners.tolist()], [names[place] for place in places.tolist()]

    def _rows(self) -> tuple[IntArray, IntArray]:
        """Return agents and resources of all units as row numbers, by agent; resource -1 for an agent without any."""
        if self.several is None:
            return np.arange(len(self.resource_of)), self.resource_of
        without = np.flatnonzero(self.resource_of < 0)
        units = np.vstack((self.several, np.column_stack((without, np.full(len(without), -1)))))
        owners, places = units[np.argsort(units[:, 0], kind="stable")].T
        return owners, places

    def _ids(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the ids of agents and of resources; row numbers where there are none."""
        agents = self.agent_ids or tuple(map(str, range(len(self.resource_of))))
        most = int(self._rows()[1].max(initial=-1))
        return agents, self.resource_ids or tuple(map(str, range(most + 1)))

    @property
    def welfare(self) -> float:
        """The sum of utilities: what the paper calls social welfare."""
        return float(self.utility.sum())

    @property
    def matched(self) -> int:
        """How many agents got a resource."""
        return int((self.resource_of >= 0).sum())

    @property
    def filled(self) -> int:
        """How many units there are: pairs of an agent and a resource."""
        return self.matched if self.several is None else len(self.several)


def format_epsilon(epsilon: float) -> str:
    """Return ε or δ in at most six digits, rounded up: a guarantee is never stated stronger than it is.

    Examples
    --------
    >>> format_epsilon(1.0), format_epsilon(1.0000004), format_epsilon(1e-5)
    ('1', '1.00001', '1e-05')
    """
    return rounded_up(epsilon, 6)


def rounded_up(value: float, digits: int) -> str:
    """Return a number of at least 0 in so many significant digits, never below what it is."""
    short = f"{value:.{digits}g}"
    if isinf(value) or float(short) >= value:
        return short
    return f"{float(Context(prec=digits, rounding=ROUND_CEILING).create_decimal_from_float(value)):.{digits}g}"
