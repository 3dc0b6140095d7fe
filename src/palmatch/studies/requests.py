"""Games that repeat: requests with one place each, reports that are drawn once and stored, and what they cost.

A report is about a place, in cells fixed by the public tables of the game that it was drawn in. In a later game its
values are the posterior means that the same channel and report imply for the resources of that game: post-processing,
so that waiting costs nothing. This module knows no time, moves nothing and writes nothing to the disk.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import blake2b
from math import floor, ldexp
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from palmatch.device.ledger import UNIT_BITS
from palmatch.domains import mobility
from palmatch.domains.mobility import Points
from palmatch.errors import InputError
from palmatch.mechanisms.channel import make_channel
from palmatch.methods import METHODS, Method, Settings, Workspace, prepare
from palmatch.methods import reports as once
from palmatch.methods.reports import ReportPlan, prior_of
from palmatch.problem import FloatArray, IntArray, Problem
from palmatch.streams import Randomness, randomness, stream

# A remainder of a budget that is smaller than this is not spent: 2^-20 of ε, in units of the ledger.
_LEAST_SHARE: Final = 1 << (UNIT_BITS - 20)

# A request: where it is (private), what it may still spend (units), in how many games it took part and was charged, its
# stored report and the number of that report's channel (-1: none).
REQUESTS: Final = pl.Schema(
    {
        "number": pl.Int64(),
        "latitude": pl.Float64(),
        "longitude": pl.Float64(),
        "left": pl.Int64(),
        "plays": pl.Int64(),
        "paid": pl.Int64(),
        "channel": pl.Int64(),
        "report": pl.Int64(),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The public numbers of games that repeat.

    Attributes
    ----------
    epsilon, budget:
        What a request spends in a game, and at most in all of them.
    interest:
        How many of the nearest resources each possible agent cares for.
    seed:
        Repeats the games, which are then a simulation; without one, randomness is fresh and is kept nowhere.
    """

    method: str = "once"
    edge: float = 1000.0
    epsilon: float = 1.0
    delta: float = 1e-5
    budget: float = 1.0
    interest: int = 20
    seed: int | None = None

    @property
    def facts(self) -> Method:
        """What is known about the method: whether it spends a budget, gives one report, has a δ."""
        return METHODS.find(self.method)

    @property
    def share(self) -> int:
        """What a request spends in a game, in units of the ledger."""
        return units_within(self.epsilon) if self.facts.spends else 0

    @property
    def allowance(self) -> int:
        """What a request may spend in all games, in units of the ledger."""
        return units_within(self.budget)

    @property
    def stores_reports(self) -> bool:
        """Whether a request gives one report and keeps it while it waits."""
        return self.facts.matcher is not None


def units_within(epsilon: float) -> int:
    """Return the most units that an ε has room for, so that never more is played than was allowed."""
    return floor(ldexp(epsilon, UNIT_BITS))


def repeatable_methods() -> list[str]:
    """Return the methods that have a meaning at ε = 0, for requests with nothing left to spend."""
    return [name for name, method in METHODS.items() if not method.located]


def check_method(method: str) -> None:
    """Refuse what cannot be played for requests that have nothing left to spend."""
    if METHODS.find(method).located:
        raise InputError(
            f"{method} has no meaning for an agent that has nothing left of the day's budget: "
            f"choose from {', '.join(repeatable_methods())}."
        )


class StoredChannel(NamedTuple):
    """The channel of a stored report: the cell of each possible type, and the chances of each report; public."""

    cell_of: IntArray
    chances: IntArray


class Draws(NamedTuple):
    """What a game is played with, to be stored before it is played, so that nothing is ever drawn twice.

    `key` makes the one-time ids, `ties` is public and breaks ties between equal bids, `reports` has the report of each
    request in the order of its one-time id; it is empty before they are drawn, or if there are none.
    """

    key: bytes
    ties: int
    reports: IntArray


def new_draws(seed: int | None, game: int) -> Draws:
    """Return the draws of a game without its reports: fresh, or a function of the seed."""
    none = np.zeros(0, dtype=np.int64)
    if seed is None:
        return Draws(secrets.token_bytes(16), secrets.randbits(63), none)
    return Draws(blake2b(f"{seed} {game}".encode(), digest_size=16).digest(), stream(seed, game), none)


def open_requests(first: int, places: FloatArray, terms: Terms) -> pl.DataFrame:
    """Return new requests at these (latitude, longitude), numbered from `first` on, each with the whole budget."""
    return pl.DataFrame(
        {
            "number": np.arange(first, first + len(places)),
            "latitude": places[:, 0],
            "longitude": places[:, 1],
            "left": np.full(len(places), terms.allowance),
            **dict.fromkeys(("plays", "paid"), np.zeros(len(places), dtype=np.int64)),
            **dict.fromkeys(("channel", "report"), np.full(len(places), -1)),
        },
        schema=REQUESTS,
    )


class Pseudonymous(NamedTuple):
    """A game as it is seen from outside: a problem under one-time ids, and, private, what its rows stand for."""

    problem: Problem
    request_of: IntArray
    resource_of: IntArray


class Matched(NamedTuple):
    """What a game left: requests with what they spent and stored, their channels, and each one's resource (-1: none).

    `problem` and `held`, the resource of each of its agents, are for who computes what the game was truly worth; they
    are missing where there was nothing to match.
    """

    requests: pl.DataFrame
    channels: tuple[StoredChannel, ...]
    resource_of: IntArray
    charged: int
    rounds: int
    problem: Problem | None = None
    held: IntArray | None = None


def match_requests(
    requests: pl.DataFrame,
    channels: tuple[StoredChannel, ...],
    numbers: IntArray,
    places: FloatArray,
    terms: Terms,
    draws: Draws,
    *,
    likely: FloatArray,
    store: Callable[[Draws], None],
) -> Matched:
    """Match requests to the resources of these numbers at these places.

    `likely` are public places near which requests may be. `store` is given what is drawn before anything is done with
    it; draws that hold reports were stored before, and these are used.
    """
    if not (len(requests) and len(places)):
        return Matched(requests, channels, np.full(len(requests), -1, dtype=np.int64), 0, 0)
    offer = offers(requests, terms)
    game = pseudonymised(requests, offer, numbers, places, terms, draws.key, likely=likely)
    workspace, settings = Workspace(game.problem), Settings(epsilon=0.0, delta=terms.delta)
    rows, offer = requests[game.request_of], offer[game.request_of]
    if terms.stores_reports:
        held, rounds, charged, channel, report, channels = _match_reports(
            workspace, settings, terms, rows, channels, draws, store
        )
    else:
        matching = prepare(workspace, terms.method, settings=settings).run(_chance(workspace, draws, terms.seed))
        held, rounds = matching.resource_of, matching.rounds
        channel, report = rows["channel"].to_numpy(), rows["report"].to_numpy()
        # A request with a share to act on is charged for it, whatever it did: the charge must not tell.
        charged = (offer > 0).astype(np.int64)
    after = rows.with_columns(
        left=rows["left"] - charged * offer,
        plays=rows["plays"] + 1,
        paid=rows["paid"] + charged,
        channel=channel,
        report=report,
    )
    resource_of, back = np.where(held >= 0, game.resource_of[held], -1), np.argsort(game.request_of)
    return Matched(after[back], channels, resource_of[back], int(charged.sum()), rounds, game.problem, held)


def offers(requests: pl.DataFrame, terms: Terms) -> IntArray:
    """Return what each plays a game with, in units: a share, or what is left; 0 for one that has given its report."""
    offer = np.minimum(requests["left"].to_numpy(), terms.share)
    done = (requests["channel"].to_numpy() >= 0) & terms.stores_reports
    return np.where((offer < _LEAST_SHARE) | done, 0, offer)


def pseudonymised(
    requests: pl.DataFrame,
    offer: IntArray,
    numbers: IntArray,
    places: FloatArray,
    terms: Terms,
    key: bytes,
    *,
    likely: FloatArray,
) -> Pseudonymous:
    """Put requests and resources under ids of this game alone, in the order of these ids."""
    request_of, names = _shuffled(requests["number"].to_numpy(), kind="agent", key=key)
    resource_of, resource_ids = _shuffled(numbers, kind="vehicle", key=key)
    rows = requests[request_of]
    problem = mobility.problem(
        Points("agents", names, rows["latitude"].to_numpy(), rows["longitude"].to_numpy(), None, None, ()),
        Points("vehicles", resource_ids, places[resource_of, 0], places[resource_of, 1], None, None, ()),
        edge=terms.edge,
        interest=terms.interest,
        epsilon=np.ldexp(offer[request_of].astype(np.float64), -UNIT_BITS),
        likely=likely,
    )
    return Pseudonymous(problem, request_of, resource_of)


def _shuffled(numbers: IntArray, *, kind: str, key: bytes) -> tuple[IntArray, tuple[str, ...]]:
    ids = one_time_ids(numbers, kind=kind, key=key)
    order = np.argsort(np.array(ids), kind="stable")
    return order.astype(np.int64), tuple(ids[place] for place in order)


def one_time_ids(numbers: IntArray, *, kind: str, key: bytes) -> list[str]:
    """Return ids for one game, which cannot be linked to those of another game without the game's key."""
    keyed = blake2b(kind.encode(), key=key, digest_size=16).digest()
    return [blake2b(int(number).to_bytes(8, "little"), key=keyed, digest_size=8).hexdigest() for number in numbers]


def _match_reports(
    workspace: Workspace,
    settings: Settings,
    terms: Terms,
    rows: pl.DataFrame,
    channels: tuple[StoredChannel, ...],
    draws: Draws,
    store: Callable[[Draws], None],
) -> tuple[IntArray, int, IntArray, IntArray, IntArray, tuple[StoredChannel, ...]]:
    """Play a method of one report: stored reports are used, the others drawn from the channels of this game.

    Returns the resource of each row, rounds, who is charged, and the channel and report of each, with all channels.
    """
    plan, matcher = once.reporting(workspace, settings), terms.facts.matcher
    assert matcher is not None
    if len(draws.reports) == 0:
        draws = draws._replace(reports=once.draw_reports(plan, _chance(workspace, draws, terms.seed)))
        store(draws)
    channel = rows["channel"].to_numpy().copy()
    stored = channel >= 0
    report = np.where(stored, rows["report"].to_numpy(), draws.reports)
    tells = np.array([one.reports > 1 for one in plan.channels])[plan.channel_of] & ~stored
    # Without a seed these streams are not those of the reports: nothing that is seen later depends on a report's bits.
    chance = _chance(workspace, draws, terms.seed)
    ended = matcher(workspace, with_stored(workspace, plan, channel, channels), report, chance, False)
    known = list(channels)
    for number in np.unique(plan.channel_of[tells]).tolist():
        channel[tells & (plan.channel_of == number)] = len(known)
        known.append(StoredChannel(plan.channels[number].cell_of, plan.channels[number].chances))
    report = np.where(channel >= 0, report, -1)
    return ended.resource_of, ended.rounds, tells.astype(np.int64), channel, report, tuple(known)


def with_stored(
    workspace: Workspace, plan: ReportPlan, channel: IntArray, stored: tuple[StoredChannel, ...]
) -> ReportPlan:
    """Return the plan in which requests with a stored report have the channel that they drew it from.

    Its values are computed anew for the resources of this game, from the region's public table.
    """
    channels, owners, channel_of = list(plan.channels), list(plan.region_of_channel), plan.channel_of.copy()
    for number, known in enumerate(stored):
        members = np.flatnonzero(channel == number)
        if len(members) == 0:
            continue
        region = workspace.regions[int(workspace.problem.region_index[members[0]])]
        channel_of[members] = len(channels)
        channels.append(make_channel(region, known.cell_of, known.chances, prior=prior_of(workspace.problem, region)))
        owners.append(region)
    return replace(plan, channels=tuple(channels), region_of_channel=tuple(owners), channel_of=channel_of)


def without_unused(
    requests: pl.DataFrame, channels: tuple[StoredChannel, ...]
) -> tuple[pl.DataFrame, tuple[StoredChannel, ...]]:
    """Return requests and channels without the channels that none of them has."""
    used, index = np.unique(requests["channel"].to_numpy(), return_inverse=True)
    # -1, which stands for no report, comes first where it occurs.
    none = int(len(used) > 0 and used[0] < 0)
    left = tuple(channels[number] for number in used[none:].tolist())
    return requests.with_columns(channel=index.astype(np.int64) - none), left


def _chance(workspace: Workspace, draws: Draws, seed: int | None) -> Randomness:
    """Return each request's private stream, fresh or a function of the seed, and the game's public ones."""
    return randomness(workspace.keys, None if seed is None else draws.ties, published=draws.ties)
