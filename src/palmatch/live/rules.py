"""The methods as a board plays them: which protocol has which rules, and what a game of it is opened with.

Which method is played by which protocol is a fact of the registry (`Method.live`). `RoundsRules` are those of `rounds`:
PALMA's tables with pure accounts, and what claims come to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from palmatch.device import messages as m
from palmatch.device.messages import pack
from palmatch.live.bid_rules import BidRules
from palmatch.live.listing import PublicSetup
from palmatch.live.report_rules import EarlierTable, MethodRules, ReportRules, bidding_of, slack_of
from palmatch.live.rules_api import Accepted, Crowd, Opening, Outcome, RegionUpdate, Rules
from palmatch.live.simulation import Simulation
from palmatch.methods.palma import palma_game
from palmatch.methods.registry import METHODS, Method
from palmatch.methods.workspace import Settings
from palmatch.palma.game import region_tables


class RoundsRules(MethodRules):
    """`palma` with pure accounts, whose charges a device can check: a lone claim of something free holds it."""

    def tables(self, crowd: Crowd) -> Mapping[tuple[str, int], m.Table]:
        """Return PALMA's tables."""
        self.holder: dict[str, bytes] = {}
        self.listed: dict[str, tuple[str, ...]] = {}
        self.region_of = {tag: region for (region, _), tags in crowd.members.items() for tag in tags}
        return super().tables(crowd)

    def _tables(self, first: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], m.Table]:
        self.game = palma_game(self.workspace, replace(self.settings, accountant="pure"))
        index = self.workspace.problem.region_index
        tables = {place: self._rounds(place, int(index[agent])) for place, agent in first.items()}
        self.listed = {region: table.resources for (region, _), table in tables.items()}
        return tables

    def _rounds(self, place: tuple[str, int], region: int) -> m.Table:
        tables, rules = region_tables(self.game.public, self.game.allowance, region), self.game.rules
        known = self.workspace.regions[region]
        rows = np.array(tables.resources, dtype=np.int64)
        columns = {resource: column for column, resource in enumerate(known.resources.tolist())}
        below = np.split(np.array(tables.selection_below), list(tables.offsets)[1:-1])
        content = m.RoundsTable(
            utilities=pack("d", known.utilities[:, [columns[row] for row in rows.tolist()]].ravel().tolist()),
            offsets=pack("I", tables.offsets),
            entries=pack("I", tables.entries),
            selection=pack("Q", np.concatenate([np.diff(part, prepend=0) for part in below]).tolist()),
            backoff=pack("Q", tables.backoff),
            truth_selection=rules.truth_selection,
            truth_backoff=rules.truth_backoff,
            gamma=rules.gamma,
            spent_backoff=rules.spent_backoff,
            selection_units=pack("Q", tables.selection_units),
            backoff_units=pack("Q", tables.backoff_units),
        )
        return self._table(place, rows, content)

    def close(self, slot: int, said: Sequence[Accepted]) -> tuple[Mapping[str, RegionUpdate], bool]:  # noqa: ARG002 - all alike
        """Let lone claims hold; it is over when every agent holds something or has nothing left to hope for."""
        served, claims = set(self.holder.values()), dict[str, list[bytes]]()
        for one in said:
            if one.tag not in served and one.resource in self.listed[self.region_of[one.tag]]:
                claims.setdefault(one.resource, []).append(one.tag)
        for name, tags in claims.items():
            if len(tags) == 1 and name not in self.holder:
                self.holder[name] = tags[0]
        free = {region for region, names in self.listed.items() if not self.holder.keys() >= set(names)}
        over = not any(self.region_of[tag] in free for tag in self.region_of.keys() - set(self.holder.values()))
        return {region: self._regional(names, claims) for region, names in self.listed.items()}, over

    def _regional(self, names: Sequence[str], claims: Mapping[str, Sequence[bytes]]) -> RegionUpdate:
        return RegionUpdate([self.holder.get(name) for name in names], attempted=[name in claims for name in names])

    def outcome(self) -> Outcome:
        """Return what is held."""
        return Outcome(dict(self.holder), {}, {})


Protocol = Literal["report", "bids", "rounds"]


def method_of(protocol: Protocol) -> Method:
    """Return the method that devices play by a protocol."""
    return next(method for method in METHODS.values() if protocol in method.live)


def rules_of(
    protocol: Protocol,
    place: PublicSetup,
    settings: Settings,
    simulation: Simulation | None = None,
    earlier: Sequence[EarlierTable] = (),
) -> Rules:
    """Return the rules of a protocol's method; `earlier` are tables whose reports are still good."""
    kinds: dict[str, type[ReportRules | RoundsRules]] = {"report": ReportRules, "bids": BidRules, "rounds": RoundsRules}
    return kinds[protocol](place, settings, simulation, earlier)


def opening_of(
    protocol: Protocol,
    place: PublicSetup,
    classes: tuple[float, ...],
    issuer: bytes,
    *,
    joining: float,
    preparing: float,
    slot: float,
    slots: int,
    simulation: Simulation | None = None,
    earlier: Sequence[EarlierTable] = (),
) -> Opening:
    """Return what a board opens a game of a protocol's method with; times are in seconds."""
    call = bidding_of(place).call
    return Opening(
        protocol=protocol,
        method=method_of(protocol).name,
        classes=classes,
        partition=place.partition,
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
        slack=slack_of(place),
    )
