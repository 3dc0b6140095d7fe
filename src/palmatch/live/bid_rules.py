"""`bids`: the auction of the batch, slot by slot, on offers that come from devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from palmatch.device.bid import Call
from palmatch.live import messages as m
from palmatch.live.report_rules import ReportRules, bidding_of
from palmatch.live.terms import Crowd, Outcome, Regional, Said
from palmatch.neighbourhood import Neighbourhood
from palmatch.problem import FloatArray, IntArray
from palmatch.rounds.draws import SELECTION, draw

_SOLD = -1.0
# Slots in a row in which an agent has to be silent before it counts as one that gave up: its bid may have been lost, or
# late. In the first call a device that has not bid yet may still be reading its table, whatever the others do.
_GIVEN_UP, _NOT_BEGUN = 3, 10


@dataclass(slots=True)
class _Sale:
    """How the bidding stands: the call and its deadline, prices, holders (-1: none), and what is sold for good."""

    prices: FloatArray
    holder: IntArray
    sold: FloatArray
    deadline: int
    call: Call
    # How many resources each agent still wants, for how many slots of the call it has been silent meanwhile, and after
    # how many it counts as one that gave up.
    wants: IntArray
    silent: IntArray
    enough: IntArray
    # The rounds of the batch so far, which decide between equal bids; and whether the last one, or the beginning of the
    # call, left any agent waiting.
    rounds: int = 0
    waiting: bool = True


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
        unsold = np.full(resources, np.nan)
        enough = np.full_like(wants, _NOT_BEGUN)
        self.sale = _Sale(opening, none, unsold, call.patience, call, wants, np.zeros_like(wants), enough)
        self.channel_of = self.plan.channel_of if self.tags else np.zeros(0, dtype=np.int64)
        self.seats = {int(row): rows for rows in self.map.seats for row in rows}
        self.agent = {tag: agent for agent, tag in enumerate(self.tags)}
        self.row = {name: row for row, name in enumerate(self.map.resources.ids)}
        self.region = {region: self._resources(region) for region, _ in crowd.members}
        self.listed = [region.resources for region in self.plan.region_of_channel] if self.tags else []
        self.offered = [set(rows.tolist()) for rows in self.listed]
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
        """Let the highest offers hold; end a call when every agent has what it wants or gave up, or at the deadline.

        Which agents gave up is not said, but follows from their silence for some slots, so that no call ends because
        bids are lost or late. A slot without any bid is no round: the game goes on as if it had not been.
        """
        sale, could = self.sale, self._could_bid()
        best, placed = self._highest(sale.rounds + 1, said)
        if placed:
            lost, sale.rounds = self._outbid(best), sale.rounds + 1
            sale.waiting = lost or sum(map(len, placed.values())) > len(best)
        could[list(placed)] = False
        sale.silent = np.where(could, sale.silent + 1, 0)
        sale.enough[list(placed)] = _GIVEN_UP
        ended = not (self._could_bid() & (sale.silent < sale.enough)).any()
        if not ended and slot + 1 < sale.deadline:
            return self.begin(), False
        # The agents that waited have given up, for which the batch has a round.
        sale.rounds += not placed and sale.waiting
        over = self._call_ends(slot + 1)
        return self.begin(), over

    def _outbid(self, best: Mapping[int, tuple[float, int, int]]) -> bool:
        """Let the highest offers hold; tell whether any agent lost what it held."""
        sale, lost = self.sale, False
        for resource, (offer, _, agent) in best.items():
            before = int(sale.holder[resource])
            if before >= 0:
                lost = True
                sale.wants[before] += 1
            sale.holder[resource], sale.prices[resource] = agent, offer
            sale.wants[agent] -= 1
        return lost

    def _could_bid(self) -> NDArray[np.bool_]:
        """Return which agents want more, and have anything on their list that is not sold for good."""
        on_offer = [np.isnan(self.sale.sold[rows]).any() for rows in self.listed]
        return (self.sale.wants > 0) & np.array(on_offer, dtype=np.bool_)[self.channel_of]

    def _highest(
        self, number: int, said: Sequence[Said]
    ) -> tuple[dict[int, tuple[float, int, int]], dict[int, set[int]]]:
        """Return the highest offer for each resource with its draw and agent, and what each agent bid for."""
        best: dict[int, tuple[float, int, int]] = {}
        placed: dict[int, set[int]] = {}
        for one in said:
            assert isinstance(one.message, m.Bid)
            agent, resource = self.agent[one.tag], self.row.get(one.resource or "", -1)
            price = self.sale.prices[resource] if resource in self.offered[self.channel_of[agent]] else np.inf
            if not np.isnan(self.sale.sold[resource]) or not one.message.offer > price:
                continue
            bids = placed.get(agent, set())
            if len(bids) >= self.sale.wants[agent] or self._has_seat(agent, resource, bids):
                continue
            placed.setdefault(agent, bids).add(resource)
            chance = draw(int(self.names[agent]), number, SELECTION)
            known = best.get(resource)
            if known is None or (-one.message.offer, chance) < (-known[0], known[1]):
                best[resource] = (one.message.offer, chance, agent)
        return best, placed

    def _has_seat(self, agent: int, resource: int, bids: set[int]) -> bool:
        """Tell whether an agent has, or has bid for, a seat of the resource that this one is a seat of."""
        return any(row in bids or self.sale.holder[row] == agent for row in self.seats[resource])

    def _call_ends(self, slots: int) -> bool:
        """Sell what is held for good, and offer the rest for nothing; tell whether that was the last call."""
        sale = self.sale
        new = (sale.holder >= 0) & np.isnan(sale.sold)
        sale.sold[new] = sale.prices[new]
        if (sale.call.number > 0 and not new.any()) or not self._could_bid().any():
            return True
        sale.call = sale.call.following()
        sale.deadline = slots + sale.call.patience
        sale.silent, sale.waiting = np.zeros_like(sale.silent), True
        sale.enough[:] = _GIVEN_UP
        sale.prices = np.where(sale.holder >= 0, sale.prices, 0.0)
        return False

    def outcome(self) -> Outcome:
        """Return what is held; the reports have stayed on the devices."""
        ids = self.map.resources.ids
        holders = {ids[row]: self.tags[agent] for row, agent in enumerate(self.sale.holder.tolist()) if agent >= 0}
        prices = np.where(np.isnan(self.sale.sold), self.sale.prices, self.sale.sold)
        return Outcome(holders, dict(zip(ids, prices.tolist(), strict=True)), {})
