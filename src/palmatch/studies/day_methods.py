"""One batch of a day by any method: the functions of `palmatch match`, and reports that are drawn once and kept.

A stored report is about a place, in cells fixed by the table of the agent's first batch. In a later batch its values
are the posterior means that the same channel and report imply for the vehicles of that batch: post-processing, so that
it costs nothing. This module moves no vehicles and keeps nothing on the disk.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from palmatch import once
from palmatch.errors import InputError
from palmatch.ground import Ground, Settings
from palmatch.methods import METHODS, prepare
from palmatch.once import Reporting
from palmatch.policies.once import channel_for
from palmatch.problem import IntArray
from palmatch.rounds.draws import Keys, stream
from palmatch.rounds.prices import sell
from palmatch.studies.day_state import StoredChannel

_REPORTING = ("once", "hungarian-once", "once-threshold", "palma-adaptive")
_ACCOUNTED = ("palma", "published")
_REGION_ONLY = ("noise", "noise-patient", "hungarian-region", "random")


def check_method(method: str) -> None:
    """Refuse what cannot be played for a day."""
    if method not in METHODS:
        raise InputError(f"There is no method {method!r}: choose from {', '.join(playable())}.")
    if "-geo" in method:
        raise InputError(
            f"{method} has no meaning for an agent that has nothing left of the day's budget: "
            f"choose from {', '.join(playable())}."
        )


def playable() -> list[str]:
    """Return the methods that can be played for a day."""
    return [method for method in METHODS if "-geo" not in method]


def pays(method: str) -> bool:
    """Tell whether agents are charged."""
    return method in _REPORTING + _ACCOUNTED


def reports_once(method: str) -> bool:
    """Tell whether all that a method tells is one report, which can be stored."""
    return method in _ON_REPORTS


def is_pure(method: str) -> bool:
    """Tell whether a method has no failure probability."""
    return method in _REPORTING


def is_public(method: str) -> bool:
    """Tell whether a method looks at nothing but regions."""
    return method in _REGION_ONLY


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """What a batch is played with, to be kept before it is played, so that nothing is ever drawn twice.

    Attributes
    ----------
    key:
        What the one-time ids of the batch are derived from.
    ties:
        Public: breaks ties between equal bids.
    reports:
        The report of each agent, in the order of its one-time ids; empty before they are drawn, or if there are none.
    """

    key: bytes
    ties: int
    reports: IntArray


def drawn(seed: int | None, batch: int) -> Drawn:
    """Return the draws of a batch without its reports: fresh, or a function of the seed."""
    none = np.zeros(0, dtype=np.int64)
    if seed is None:
        return Drawn(secrets.token_bytes(16), secrets.randbits(63), none)
    return Drawn(blake2b(f"{seed} {batch}".encode(), digest_size=16).digest(), stream(seed, batch), none)


@dataclass(frozen=True, slots=True, eq=False)
class Memory:
    """The stored reports of a batch's agents: for each its channel (-1: none) and report, and the channels."""

    channel: IntArray
    report: IntArray
    channels: tuple[StoredChannel, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Ended:
    """How a batch ended: each agent's resource (-1: none), rounds, which agents are charged, and what they stored."""

    resource_of: IntArray
    rounds: int
    charged: IntArray
    memory: Memory


def play_reports(
    ground: Ground,
    method: str,
    settings: Settings,
    draws: Drawn,
    memory: Memory,
    *,
    seed: int | None,
    keep: Callable[[Drawn], None],
) -> Ended:
    """Play a batch of a method that gives reports.

    Agents with a stored report use it; the others draw theirs from the channel of this batch, which is the one of
    `match`. `keep` is given what was drawn before anything is done with it.
    """
    plan = once.reporting(ground, settings)
    if len(draws.reports) == 0:
        told = once.reports(plan, *_private(ground, seed=None if seed is None else draws.ties))
        draws = replace(draws, reports=told)
        keep(draws)
    stored = memory.channel >= 0
    tells = np.array([channel.reports > 1 for channel in plan.channels])[plan.channel_of] & ~stored
    known = replace(memory, report=np.where(stored, memory.report, draws.reports))
    resource_of, rounds = _ON_REPORTS[method](ground, with_stored(ground, plan, known), known.report, draws.ties)
    return Ended(resource_of, rounds, tells.astype(np.int64), _stored(known, plan, tells))


def play_other(
    ground: Ground, method: str, settings: Settings, draws: Drawn, *, seed: int | None
) -> tuple[IntArray, int]:
    """Play a batch of any other method; return each agent's resource and the rounds."""
    ground._keys = _private(ground, seed=None if seed is None else draws.ties)[0]
    matching = prepare(ground, method, settings=settings).play(draws.ties)
    return matching.resource_of, matching.rounds


def with_stored(ground: Ground, plan: Reporting, memory: Memory) -> Reporting:
    """Return the plan in which agents with a stored report have the channel that they drew it from.

    Its values are computed anew for the vehicles of this batch, from the region's public table.
    """
    channels, owners = list(plan.channels), list(plan.region_of_channel)
    channel_of = plan.channel_of.copy()
    for number, channel in enumerate(memory.channels):
        members = np.flatnonzero(memory.channel == number)
        if len(members) == 0:
            continue
        region = ground.regions[int(ground.problem.region_index[members[0]])]
        prior = once.prior_of(ground.problem, region)
        channel_of[members] = len(channels)
        channels.append(channel_for(region, channel.cell_of, channel.chances, prior=prior))
        owners.append(region)
    return replace(plan, channels=tuple(channels), region_of_channel=tuple(owners), channel_of=channel_of)


def _stored(memory: Memory, plan: Reporting, tells: NDArray[np.bool_]) -> Memory:
    """Return the memory with the reports that were given now."""
    channel, channels = memory.channel.copy(), list(memory.channels)
    for number in np.unique(plan.channel_of[tells]).tolist():
        channel[tells & (plan.channel_of == number)] = len(channels)
        channels.append(StoredChannel(plan.channels[number].cell_of, plan.channels[number].chances))
    return Memory(channel, np.where(channel >= 0, memory.report, -1), tuple(channels))


def _private(ground: Ground, seed: int | None) -> tuple[Keys, int]:
    """Return what the agents' draws are a hash of: for each agent fresh bits of its own, or a function of the seed."""
    if seed is not None:
        return ground.keys, seed
    return np.frombuffer(os.urandom(8 * ground.problem.agents), dtype="<u8").astype(np.uint64), 0


def _bids(ground: Ground, plan: Reporting, told: IntArray, ties: int) -> tuple[IntArray, int]:
    table = once.stalls(plan, told)
    sale = sell(table, plan.opening, once.STEP, keys=ground.keys, seed=ties, patience=once.PATIENCE)
    return sale.resource_of, sale.rounds


_ON_REPORTS = {"once": _bids}
