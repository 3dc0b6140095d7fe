"""One attack on captured traffic: games with either of two places, a test learnt from some, a bound from the others."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from live.wire.capture import CHAINS, observe_wire
from live.wire.games import VIRTUAL, AuditSetup, Captured
from live.wire.networks import Network
from palmatch.device.records import ReportTable
from palmatch.live.codec import Envelope, body_of
from palmatch.live.records import table_record
from palmatch.live.rules import Crowd
from palmatch.live.topics import Topic, table_name
from palmatch.studies.blackbox import Bound, Claim, Observation, check_games, flagged_from, measured

# Real games that are played at once: they wait most of the time, and more would delay one another.
_AT_ONCE = 12
# Games in memory with one set of draws.
_BATCH = 100


@dataclass(frozen=True, slots=True)
class WireAttack:
    """What an observer of all traffic learns about one device.

    Attributes
    ----------
    network:
        "memory" with a virtual clock, or "hub" or "mqtt" (Mosquitto) on the loopback.
    spots:
        The two grid points that were told apart: the pair that the public table tells apart best.
    games:
        How many games were played with either.
    bound:
        A lower bound on ε, at its error probability.
    flagged_from:
        The smallest ε that as many games would have flagged with 95 % power.
    """

    protocol: str
    network: Network
    spots: tuple[int, int]
    test: str
    games: int
    claimed: float
    bound: Bound
    flagged_from: float

    @property
    def broken(self) -> bool:
        """Whether more was learnt than is guaranteed."""
        return self.bound.epsilon > self.claimed

    @property
    def verdict(self) -> str:
        """What came of it, in a sentence."""
        return (
            f"{self.protocol} ({self.network}, {self.games:,} games with either place): measured at least "
            f"{self.bound.epsilon:.2f}, stated at most {self.claimed:g}, flagged from {self.flagged_from:.2f}: "
            f"{'BROKEN' if self.broken else 'fine'}"
        )


def attack_wire(
    setup: AuditSetup,
    *,
    games: int,
    network: Network = "memory",
    error: float = 1e-6,
) -> WireAttack:
    """Tell two places of the target apart by all traffic, in memory or over a broker on the loopback."""
    check_games(games, error)
    spots, claim = worst_pair(setup), Claim(setup.epsilon, 0.0)
    seen = _virtual(setup, spots, games) if network == "memory" else asyncio.run(_real(setup, spots, games, network))
    test, _, _, bound = measured(*seen, claim, error, names=CHAINS)
    return WireAttack(
        protocol=setup.protocol,
        network=network,
        spots=spots,
        test=test,
        games=games,
        claimed=claim.epsilon,
        bound=bound,
        flagged_from=flagged_from(games, claimed=claim.epsilon, delta=0.0, error=error),
    )


def worst_pair(setup: AuditSetup) -> tuple[int, int]:
    """Return two grid points that some report tells apart best, as the public table says; two corners for rounds."""
    tags = tuple(device.tag("audit") for device in setup.devices)
    crowd = Crowd("audit", bytes(32), (0.0, setup.epsilon), {(setup.region, 1): tags}, bytes(32))
    message = setup.opening(VIRTUAL).rules.tables(crowd)[setup.region, 1]
    topic = Topic("audit", "table", table_name(setup.region, 1))
    table = table_record(Envelope(topic, message, body_of(message), bytes(64)))
    if not isinstance(table, ReportTable):
        return 0, setup.grid.spots - 1
    chances = np.log(np.array(table.chances, dtype=np.float64))
    pairs = list(combinations(range(len(chances)), 2))
    apart = [float(np.abs(chances[one] - chances[two]).max()) for one, two in pairs]
    one, two = pairs[int(np.argmax(apart))]
    return table.cell_of.index(one), table.cell_of.index(two)


def _virtual(setup: AuditSetup, spots: tuple[int, int], games: int) -> tuple[list[Observation], list[Observation]]:
    """Play games in batches, each with draws of its own."""
    seen: tuple[list[Observation], list[Observation]] = ([], [])
    for number, first in enumerate(range(0, 2 * games, _BATCH)):
        for side, one in enumerate(_played(setup, spots, number, min(_BATCH, 2 * games - first))):
            seen[side % 2].append(one)
    return seen


def _played(setup: AuditSetup, spots: tuple[int, int], number: int, games: int) -> list[Observation]:
    """Play one batch: both places by turns."""
    setup.draw_anew(number)
    return [observe_wire(setup.virtual(spots[game % 2])) for game in range(games)]


async def _real(
    setup: AuditSetup, spots: tuple[int, int], games: int, network: Network
) -> tuple[list[Observation], list[Observation]]:
    seen: tuple[list[Observation], list[Observation]] = ([], [])
    # Both places in every batch of games, so that what else the machine does meanwhile tells nothing.
    for number in range(0, 2 * games, _AT_ONCE):
        sides = [place % 2 for place in range(number, min(number + _AT_ONCE, 2 * games))]
        captured: Sequence[Captured] = await asyncio.gather(*(setup.real(spots[side], network) for side in sides))
        for side, one in zip(sides, captured, strict=True):
            seen[side].append(observe_wire(one))
    return seen
