"""The methods as a board plays them: which protocol has which rules, and what a game of it is opened with.

Which method is played by which protocol is a fact of the registry (`Method.live`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from palmatch.errors import InputError
from palmatch.live import messages as m
from palmatch.live.bid_rules import BidRules
from palmatch.live.maps import Map
from palmatch.live.method_rules import EarlierTable
from palmatch.live.report_rules import ReportRules, bidding_of, slack_of
from palmatch.live.rounds_rules import RoundsRules
from palmatch.live.simulation import Simulation
from palmatch.live.terms import Opening, Rules
from palmatch.methods.registry import METHODS, Method
from palmatch.methods.workspace import Settings

Protocol = Literal["report", "bids", "rounds"]

# A byte on the wire; and what a linear program of all pairs of agent and resource takes in time.
_MOST_DEMAND, _MOST_RESOURCES, _MOST_PAIRS = 255, 5000, 2_000_000


def method_of(protocol: Protocol) -> Method:
    """Return the method that devices play by a protocol."""
    return next(method for method in METHODS.values() if protocol in method.live)


def rules_of(
    protocol: Protocol,
    place: Map,
    settings: Settings,
    simulation: Simulation | None = None,
    earlier: Sequence[EarlierTable] = (),
) -> Rules:
    """Return the rules of a protocol's method; `earlier` are tables whose reports are still good."""
    kinds: dict[str, type[ReportRules | RoundsRules]] = {"report": ReportRules, "bids": BidRules, "rounds": RoundsRules}
    return kinds[protocol](place, settings, simulation, earlier)


def opening_of(
    protocol: Protocol,
    place: Map,
    classes: tuple[float, ...],
    issuer: bytes,
    *,
    joining: float,
    preparing: float,
    slot: float,
    slots: int,
    demand: int = 1,
    simulation: Simulation | None = None,
    earlier: Sequence[EarlierTable] = (),
) -> Opening:
    """Return what a board opens a game of a protocol's method with; times are in seconds."""
    refuse_demand(protocol, place, demand)
    grid, call = place.partition, bidding_of(place).call
    return Opening(
        protocol=protocol,
        method=method_of(protocol).name,
        classes=classes,
        partition=m.Partition(edge=grid.edge, origin=(grid.latitude, grid.longitude), spacing=grid.spacing),
        resources=place.listed(),
        issuer=issuer,
        rules=rules_of(protocol, place, Settings(), simulation, earlier),
        joining=joining,
        preparing=preparing,
        slot=slot,
        slots=1 if protocol == "report" else slots,
        step=call.step,
        patience=call.patience,
        growth=call.growth,
        slack=slack_of(place, demand),
        demand=demand,
        agents=_MOST_PAIRS // len(place.resources.ids) if protocol == "report" and demand > 1 else None,
    )


def refuse_demand(protocol: Protocol, place: Map, demand: int, agents: int = 0) -> None:
    """Say before a game starts what cannot be played where agents want more than one resource.

    `agents` is their number where that is known before they join.
    """
    if not 1 <= demand <= _MOST_DEMAND:
        raise InputError(f"Expected a demand between 1 and {_MOST_DEMAND}, got {demand}.")
    if demand == 1:
        return
    for rows in place.seats:
        if len({(place.resources.latitude[row], place.resources.longitude[row]) for row in rows}) > 1:
            names = [place.resources.ids[row] for row in rows[:2]]
            raise InputError(
                f"By their names {' and '.join(names)} are seats of one resource, but at different places: rename them."
            )
    if protocol == "report" and len(place.resources.ids) > _MOST_RESOURCES:
        raise InputError(
            f"With demands above 1 reports are matched for at most {_MOST_RESOURCES:,} resources, and here are "
            f"{len(place.resources.ids):,}: choose bids, or a smaller area."
        )
    pairs = agents * len(place.resources.ids)
    if protocol == "report" and pairs > _MOST_PAIRS:
        raise InputError(
            f"With demands above 1 reports are matched on at most {_MOST_PAIRS:,} pairs of agent and resource, and here"
            f" are {pairs:,}: choose bids, or a smaller area."
        )
    if protocol == "report" and place.interest is not None and len(place.seats) < len(place.resources.ids):
        raise InputError(
            "With demands above 1 and several seats of a resource reports are matched on whole lists: leave the "
            "interest out, or choose bids."
        )
