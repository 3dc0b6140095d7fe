"""What an observer sees of one game: exactly, as symbols from coarse to fine, and roughly, as a row of numbers.

Everything that a matching makes public is in here: each row of the trace, who holds what, rounds, charged actions, the
published ε and the guarantee itself. Welfare and utilities are computed from the truth and not published.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from palmatch.matching import Matching, Outcome, Trace
from palmatch.problem import FloatArray, IntArray

# Actions of the target that have a symbol for each prefix; after these comes the whole course of them.
_PREFIXES = 12

# Actions of the target that are looked at one by one.
_MOST_STEPS = 400

# Columns for what each other agent holds, at most.
_MOST_COLUMNS = 400

# What of a game a chain of symbols tells, from coarse to fine.
CHAINS = ("own actions", "holdings", "other agents", "everything")


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """One game as seen.

    Attributes
    ----------
    chains:
        For each of `CHAINS` symbols of which each refines the one before.
    steps:
        The target's actions one by one.
    numbers:
        Counts and other figures.
    """

    chains: tuple[tuple[int, ...], ...]
    steps: tuple[int, ...]
    numbers: FloatArray


def observe(matching: Matching, target: int) -> Observation:
    """Return what was seen of a game."""
    trace = matching.trace
    own = np.zeros(0, dtype=np.bool_) if trace is None else trace.agent == target
    stated = hash((matching.guarantee, _figures(matching)))
    mine, theirs = (0, 0) if trace is None else (_rows(trace, own), _rows(trace, ~own))
    units = matching.units
    mine_of = units[:, 0] == target
    held, others_hold = (hash(units[rows].tobytes()) for rows in (mine_of, ~mine_of))
    steps = () if trace is None else _steps(trace, own)
    prefixes = refined(*steps[:_PREFIXES])
    chains = (
        (*prefixes, *refined(prefixes[-1] if prefixes else 0, mine, held)),
        refined(held, others_hold, matching.rounds),
        refined(matching.rounds, others_hold, theirs),
        refined(stated, mine, held, others_hold, matching.rounds, theirs),
    )
    return Observation(chains, steps, _numbers(matching, units, target))


def refined(*parts: int) -> tuple[int, ...]:
    """Return symbols of which each stands for all parts up to its own."""
    symbols, last = [], 0
    for part in parts:
        last = hash((last, part))
        symbols.append(last)
    return tuple(symbols)


def digest(found: IntArray, rounds: int, trace: Trace | None) -> int:
    """Return one number for the whole course of a game; `found` is the resource of each agent, or all units."""
    held = found if found.ndim == 1 else found[np.lexsort((found[:, 1], found[:, 0]))]
    return hash((held.astype(np.int64).tobytes(), rounds, 0 if trace is None else _rows(trace, slice(None))))


def _figures(matching: Matching) -> tuple[bytes, ...]:
    """Return per-agent figures that may be published."""
    return (matching.epsilon.tobytes(), matching.charged.tobytes()) if matching.epsilon_is_public else ()


def _rows(trace: Trace, rows: NDArray[np.bool_] | slice) -> int:
    """Return one number for some rows of a trace."""
    columns = (trace.step, trace.agent, trace.resource, trace.outcome, trace.offer)
    return hash(tuple(np.ascontiguousarray(column[rows]).tobytes() for column in columns))


def _steps(trace: Trace, own: NDArray[np.bool_]) -> tuple[int, ...]:
    """Return what the target did, a symbol each: which resource, and what came of it."""
    first = np.flatnonzero(own)[:_MOST_STEPS]
    symbols: list[int] = (trace.resource[first] * len(Outcome) + trace.outcome[first]).tolist()
    return tuple(symbols)


def _numbers(matching: Matching, units: IntArray, target: int) -> FloatArray:
    """Return counts that a linear test can weigh."""
    agents, resources = len(matching.resource_of), len(matching.resource_ids)
    parts: list[np.ndarray] = [np.array([matching.rounds, matching.filled])]
    if matching.epsilon_is_public:
        parts.append(np.array([matching.epsilon[target], matching.charged[target], matching.charged.sum()]))
    holder, held = units.T
    if agents * resources <= _MOST_COLUMNS:
        parts.append(np.bincount(holder * resources + held, minlength=agents * resources))
    else:
        parts.append(np.bincount(held[holder == target], minlength=resources))
    if matching.trace is not None:
        parts += _actions(matching.trace, target, resources)
    return np.concatenate(parts).astype(np.float64)


def _actions(trace: Trace, target: int, resources: int) -> list[np.ndarray]:
    own = trace.agent == target
    kinds, width = len(Outcome), max(resources, int(trace.resource.max(initial=0)) + 1)
    return [
        np.array([own.sum(), trace.step[own].max(initial=0), len(trace)]),
        np.bincount(trace.outcome[own], minlength=kinds),
        np.bincount(trace.resource[own], minlength=width)[:resources],
        np.bincount(trace.resource[own], weights=trace.offer[own], minlength=width)[:resources],
        np.bincount(trace.resource[~own], minlength=width)[:resources],
        np.bincount(trace.resource[~own], weights=trace.offer[~own], minlength=width)[:resources],
    ]
