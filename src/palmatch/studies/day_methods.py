"""One batch of a day by any method: the functions of `palmatch match`, and reports that are drawn once and kept.

A stored report is about a place, in cells fixed by the table of the agent's first batch. In a later batch its values
are the posterior means that the same channel and report imply for the vehicles of that batch: post-processing, so that
it costs nothing. This module moves no vehicles and keeps nothing on the disk.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from palmatch.errors import InputError
from palmatch.methods import METHODS, Settings, Workspace, prepare
from palmatch.methods import reports as once
from palmatch.methods.opening import prior_of
from palmatch.methods.reports import Reporting
from palmatch.policies.once import channel_for
from palmatch.problem import IntArray
from palmatch.rounds.draws import Randomness, randomness, stream
from palmatch.studies.day_state import StoredChannel


def check_method(method: str) -> None:
    """Refuse what cannot be played for a day."""
    if METHODS.find(method).located:
        raise InputError(
            f"{method} has no meaning for an agent that has nothing left of the day's budget: "
            f"choose from {', '.join(playable())}."
        )


def playable() -> list[str]:
    """Return the methods that can be played for a day."""
    return [name for name, method in METHODS.items() if not method.located]


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
    workspace: Workspace,
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
    plan = once.reporting(workspace, settings)
    if len(draws.reports) == 0:
        draws = replace(draws, reports=once.drawn(plan, _chance(workspace, draws, seed)))
        keep(draws)
    stored = memory.channel >= 0
    tells = np.array([channel.reports > 1 for channel in plan.channels])[plan.channel_of] & ~stored
    known = replace(memory, report=np.where(stored, memory.report, draws.reports))
    settle = METHODS.find(method).settle
    assert settle is not None
    # Without a seed these streams are not those of the reports: nothing that is seen later depends on a report's bits.
    chance = _chance(workspace, draws, seed)
    settled = settle(workspace, with_stored(workspace, plan, known), known.report, chance, False)
    return Ended(settled.resource_of, settled.rounds, tells.astype(np.int64), _stored(known, plan, tells))


def play_other(
    workspace: Workspace, method: str, settings: Settings, draws: Drawn, *, seed: int | None
) -> tuple[IntArray, int]:
    """Play a batch of any other method; return each agent's resource and the rounds."""
    matching = prepare(workspace, method, settings=settings).run(_chance(workspace, draws, seed))
    return matching.resource_of, matching.rounds


def with_stored(workspace: Workspace, plan: Reporting, memory: Memory) -> Reporting:
    """Return the plan in which agents with a stored report have the channel that they drew it from.

    Its values are computed anew for the vehicles of this batch, from the region's public table.
    """
    channels, owners = list(plan.channels), list(plan.region_of_channel)
    channel_of = plan.channel_of.copy()
    for number, channel in enumerate(memory.channels):
        members = np.flatnonzero(memory.channel == number)
        if len(members) == 0:
            continue
        region = workspace.regions[int(workspace.problem.region_index[members[0]])]
        prior = prior_of(workspace.problem, region)
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


def _chance(workspace: Workspace, draws: Drawn, seed: int | None) -> Randomness:
    """Return each agent's private stream, fresh or a function of the day's seed, and the batch's public ones."""
    return randomness(workspace.keys, None if seed is None else draws.ties, published=draws.ties)
