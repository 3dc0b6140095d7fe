"""`bids`: the auction of the batch, slot by slot, on offers that come from devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from palmatch.device.bid import Call
from palmatch.live import messages as m
from palmatch.live.report_rules import ReportRules, bidding_of
from palmatch.live.terms import Crowd, Outcome, Regional, Said
from palmatch.neighbourhood import Neighbourhood
from palmatch.problem import FloatArray, IntArray
from palmatch.rounds.draws import SELECTION, draw

_SOLD = -1.0


@dataclass(slots=True)
class _Sale:
    """How the bidding stands: the call and its end, prices, holders (-1: none), and what is sold for good."""

    prices: FloatArray
    holder: IntArray
    sold: FloatArray
    deadline: int
    call: Call
    # How many resources each agent still wants, and all of them together that are not sold yet.
    wants: IntArray
    free: int


class BidRules(ReportRules):
    """`once`: what `rounds.auction.sell` does in the batch, slot by slot, on offers that come from outside."""

    def tables(self, crowd: Crowd) -> Mapping[tuple[str, int], m.Table]:
        """Return the channels, and open the sale."""
        tables = super().tables(crowd)
        resources = len(self.map.resources.ids)
        opening = self.plan.opening.copy() if self.tags else np.zeros(resources)
        none = np.full(resources, -1, dtype=np.int64)
        call = bidding_of(self.map).call
        wants = np.array([crowd.demands.get(tag, 1) for tag in self.tags], dtype=np.int64)
        self.sale = _Sale(opening, none, np.full(resources, np.nan), call.patience, call, wants, int(wants.sum()))
        self.seats = {int(row): rows for rows in self.map.seats for row in rows}
        self.agent = {tag: agent for agent, tag in enumerate(self.tags)}
        self.row = {name: row for row, name in enumerate(self.map.resources.ids)}
        self.region = {region: self._resources(region) for region, _ in crowd.members}
        self.offered = [set(self._owner(agent).resources.tolist()) for agent in range(len(self.tags))]
        return tables

    def _owner(self, agent: int) -> Neighbourhood:
        return self.plan.region_of_channel[int(self.plan.channel_of[agent])]

    def _resources(self, region: str) -> IntArray:
        place = next(place for place in self._crowd.members if place[0] == region)
        return self._owner(self.tags.index(self._crowd.members[place][0])).resources

    def begin(self) -> Mapping[str, Regional]:
        """Return the prices and the holders of each region's resources."""
        posted = np.where(np.isnan(self.sale.sold), self.sale.prices, _SOLD)
        return {
            region: Regional(
                [self.tags[holder] if holder >= 0 else None for holder in self.sale.holder[rows].tolist()],
                call=self.sale.call.number,
                prices=posted[rows].tolist(),
            )
            for region, rows in self.region.items()
        }

    def close(self, slot: int, said: Sequence[Said]) -> tuple[Mapping[str, Regional], bool]:
        """Let the highest offers hold; end a call when no agent is left that wants to bid, or at its deadline."""
        best, waiting = self._highest(slot + 1, said)
        sale = self.sale
        for resource, (offer, _, agent) in best.items():
            before = int(sale.holder[resource])
            if before >= 0:
                waiting += 1
                sale.wants[before] += 1
            sale.holder[resource], sale.prices[resource] = agent, offer
            sale.wants[agent] -= 1
        over = (waiting == 0 or slot + 1 >= sale.deadline) and self._call_ends(slot + 1)
        return self.begin(), over

    def _highest(self, number: int, said: Sequence[Said]) -> tuple[dict[int, tuple[float, int, int]], int]:
        """Return the highest offer for each resource with its draw and agent, and how many bid in vain."""
        best: dict[int, tuple[float, int, int]] = {}
        placed: dict[int, set[int]] = {}
        bidders = 0
        for one in said:
            assert isinstance(one.message, m.Bid)
            agent, resource = self.agent[one.tag], self.row.get(one.resource or "", -1)
            price = self.sale.prices[resource] if resource in self.offered[agent] else np.inf
            if not np.isnan(self.sale.sold[resource]) or not one.message.offer > price:
                continue
            bids = placed.setdefault(agent, set())
            if len(bids) >= self.sale.wants[agent] or self._has_seat(agent, resource, bids):
                continue
            bids.add(resource)
            bidders += 1
            chance = draw(int(self.names[agent]), number, SELECTION)
            known = best.get(resource)
            if known is None or (-one.message.offer, chance) < (-known[0], known[1]):
                best[resource] = (one.message.offer, chance, agent)
        return best, bidders - len(best)

    def _has_seat(self, agent: int, resource: int, bids: set[int]) -> bool:
        """Tell whether an agent has, or has bid for, a seat of the resource that this one is a seat of."""
        return any(row in bids or self.sale.holder[row] == agent for row in self.seats[resource])

    def _call_ends(self, rounds: int) -> bool:
        """Sell what is held for good, and offer the rest for nothing; tell whether that was the last call."""
        sale = self.sale
        new = (sale.holder >= 0) & np.isnan(sale.sold)
        sale.sold[new] = sale.prices[new]
        sale.free -= int(new.sum())
        if sale.free == 0 or (sale.call.number > 0 and not new.any()):
            return True
        sale.call = sale.call.following()
        sale.deadline = rounds + sale.call.patience
        sale.prices = np.where(sale.holder >= 0, sale.prices, 0.0)
        return False

    def outcome(self) -> Outcome:
        """Return what is held; the reports have stayed on the devices."""
        ids = self.map.resources.ids
        holders = {ids[row]: self.tags[agent] for row, agent in enumerate(self.sale.holder.tolist()) if agent >= 0}
        prices = np.where(np.isnan(self.sale.sold), self.sale.prices, self.sale.sold)
        return Outcome(holders, dict(zip(ids, prices.tolist(), strict=True)), {})
