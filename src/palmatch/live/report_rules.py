"""`report`: channels from the roster's counts, reports of earlier games, and the optimal matching of all reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from palmatch.device.bid import Call
from palmatch.live import messages as m
from palmatch.live.maps import Map, only
from palmatch.live.method_rules import MethodRules
from palmatch.live.packing import pack
from palmatch.live.support import UNIT_SLACK, matched_units, supporting_prices
from palmatch.live.terms import Crowd, Outcome, Regional, Said
from palmatch.methods.centre_on_reports import AUCTION_STEP, MOST_RESOURCES, auctioned, matched_on
from palmatch.methods.opening import prior_of
from palmatch.methods.reports import FEW_AGENTS, FINE_STEP, LONG_PATIENCE, STEP, Reporting, reporting, value_lists
from palmatch.neighbourhood import Neighbourhood
from palmatch.policies.once import channel_for
from palmatch.problem import FloatArray, IntArray

# Bids of a large game: 100 slots suffice, where the batch bids for 130 rounds. The step grows from slot to slot;
# opening prices are those of a step between the first and the last.
_QUICK_STEP, _QUICK_PATIENCE, _QUICK_GROWTH, _OPENING_STEP = 0.02, 90, 0.0016, 0.045


@dataclass(frozen=True, slots=True)
class Bidding:
    """How an auction goes: the first call, and the step that opening prices are computed for."""

    call: Call
    opening_step: float


def bidding_of(place: Map) -> Bidding:
    """Return how agents bid; announced before any of them joins, so it follows from the resources."""
    if len(place.resources.ids) <= FEW_AGENTS:
        return Bidding(Call(0, FINE_STEP, LONG_PATIENCE), FINE_STEP)
    return Bidding(Call(0, _QUICK_STEP, _QUICK_PATIENCE, _QUICK_GROWTH), _OPENING_STEP)


def slack_of(place: Map, demand: int = 1) -> float:
    """Return what a published matching of reports may fall short of its prices, for each unit."""
    if demand > 1:
        return UNIT_SLACK
    return 1e-9 + (AUCTION_STEP if len(place.resources.ids) > MOST_RESOURCES else 0.0)


class ReportRules(MethodRules):
    """`hungarian-once`: the optimal matching of the reports, with prices that support it."""

    def tables(self, crowd: Crowd) -> Mapping[tuple[str, int], m.Table]:
        """Return the channels."""
        self.reports: dict[bytes, tuple[bytes, int]] = {}
        self.holders: dict[str, bytes] = {}
        self.prices: FloatArray = np.zeros(len(self.map.resources.ids))
        return super().tables(crowd)

    def _tables(self, first: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], m.Table]:
        step, own = bidding_of(self.map).opening_step, self.settings.step
        if own is None:
            own = FINE_STEP if self.workspace.problem.agents <= FEW_AGENTS else STEP
        # Unless the method would take the announced step by itself: more agents may have come than resources.
        settings = self.settings if own == step else replace(self.settings, step=step)
        self.plan: Reporting = reporting(self.workspace, settings)
        assert self.plan.step == step
        # The place of each earlier table among the channels, and those channels with their values in this game.
        self.kept: dict[bytes, int] = {}
        self.channels, self.owners = list(self.plan.channels), list(self.plan.region_of_channel)
        return {place: self._channel(place, int(self.plan.channel_of[agent])) for place, agent in first.items()}

    def _earlier(self, place: tuple[str, int], region: Neighbourhood) -> tuple[m.Earlier, ...]:
        """Return what reports of earlier tables are worth now: post-processing of what was told then."""
        here = (place[0], self._crowd.classes[place[1]])
        tables = [table for table in self.earlier if (table.region, table.epsilon) == here]
        if not tables:
            return ()
        prior, found = prior_of(self.workspace.problem, region), []
        for table in tables:
            channel = channel_for(region, table.cell_of, table.chances, prior=prior)
            self.kept[table.channel] = len(self.channels)
            self.channels.append(channel)
            self.owners.append(region)
            found.append(m.Earlier(channel=table.channel, values=pack("d", channel.values.ravel().tolist())))
        return tuple(found)

    def _channel(self, place: tuple[str, int], number: int) -> m.Table:
        channel, region = self.plan.channels[number], self.plan.region_of_channel[number]
        content = m.Channel(
            earlier=self._earlier(place, region),
            cell_of=pack("I", channel.cell_of.tolist()),
            chances=pack("Q", channel.chances.ravel().tolist()),
            values=pack("d", channel.values.ravel().tolist()),
            opening=pack("d", self.plan.opening[region.resources].tolist()),
        )
        return self._table(place, region.resources, content)

    def close(self, slot: int, said: Sequence[Said]) -> tuple[Mapping[str, Regional], bool]:  # noqa: ARG002 - there is one
        """Match the reports; an agent that sent none gets nothing."""
        for one in said:
            assert isinstance(one.message, m.Report)
            self.reports[one.tag] = (one.message.channel, one.message.report)
        present = np.array([agent for agent, tag in enumerate(self.tags) if tag in self.reports], dtype=np.int64)
        if len(present):
            self._match(present)
        return {}, True

    def _match(self, present: IntArray) -> None:
        reported = np.array([self.reports[self.tags[agent]][1] for agent in present.tolist()])
        used = [self.kept.get(self.reports[self.tags[agent]][0], -1) for agent in present.tolist()]
        channel_of = np.where(np.array(used) >= 0, used, self.plan.channel_of[present])
        plan = replace(
            self.plan,
            channels=tuple(self.channels),
            region_of_channel=tuple(self.owners),
            channel_of=channel_of,
            cell=self.plan.cell[present],
        )
        lists = value_lists(plan, reported)
        names, resources = self.names[present], len(self.prices)
        problem = only(self.workspace.problem, present)
        if problem.seats is not None:
            units, self.prices = matched_units(problem, lists, names, self.map.seats)
            self._hold(present[units[:, 0]], units[:, 1])
            return
        if resources > MOST_RESOURCES:
            sale = auctioned(lists, resources, names)
            resource_of, self.prices = sale.resource_of, sale.prices
        else:
            resource_of = matched_on(problem, lists, names)
            self.prices = supporting_prices(lists, resource_of, resources)
        self._hold(present[resource_of >= 0], resource_of[resource_of >= 0])

    def _hold(self, agents: IntArray, resources: IntArray) -> None:
        for agent, resource in zip(agents.tolist(), resources.tolist(), strict=True):
            self.holders[self.map.resources.ids[resource]] = self.tags[agent]

    def outcome(self) -> Outcome:
        """Return the matching, the prices that support it, and the reports."""
        return Outcome(self.holders, dict(zip(self.map.resources.ids, self.prices.tolist(), strict=True)), self.reports)
