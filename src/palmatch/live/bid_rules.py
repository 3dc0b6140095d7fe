"""`bids`: the auction of the batch, slot by slot, on offers that come from devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from palmatch.device import messages as m
from palmatch.device.bid import Call
from palmatch.live.report_rules import ReportRules, bidding_of
from palmatch.live.rules_api import Accepted, Crowd, Outcome, RegionUpdate
from palmatch.matchers.auction import AuctionRounds
from palmatch.problem import IntArray
from palmatch.regions.tables import RegionView

_SOLD = -1.0
# Slots in a row in which an agent has to be silent before it counts as one that gave up: its bid may have been lost, or
# late. In the first call a device that has not bid yet may still be reading its table, whatever the others do.
_GIVEN_UP, _NOT_BEGUN = 3, 10


@dataclass(slots=True)
class _Sale:
    """How the bidding stands: the auction, the call and its deadline."""

    auction: AuctionRounds
    deadline: int
    call: Call
    # For how many slots of the call each agent that holds nothing has been silent, and after how many it counts as one
    # that gave up.
    silent: IntArray
    enough: IntArray
    # The rounds of the batch so far, which decide between equal bids; and whether the last one, or the beginning of the
    # call, left any agent waiting.
    rounds: int = 0
    waiting: bool = True


class BidRules(ReportRules):
    """`once`: the auction of the batch, slot by slot, on offers that come from outside."""

    def tables(self, crowd: Crowd) -> Mapping[tuple[str, int], m.Table]:
        """Return the channels, and open the sale."""
        tables = super().tables(crowd)
        resources = len(self.map.resources.ids)
        opening = self.plan.opening.copy() if self.tags else np.zeros(resources)
        call, agents = bidding_of(self.map).call, len(self.tags)
        auction = AuctionRounds(opening, self.names[:agents])
        silent, enough = np.zeros(agents, dtype=np.int64), np.full(agents, _NOT_BEGUN)
        self.sale = _Sale(auction, call.patience, call, silent, enough)
        self.channel_of = self.plan.channel_of if self.tags else np.zeros(0, dtype=np.int64)
        self.agent = {tag: agent for agent, tag in enumerate(self.tags)}
        self.row = {name: row for row, name in enumerate(self.map.resources.ids)}
        self.region = {region: self._resources(region) for region, _ in crowd.members}
        self.listed = [region.resources for region in self.plan.region_of_channel] if self.tags else []
        self.offered = [set(rows.tolist()) for rows in self.listed]
        return tables

    def _owner(self, agent: int) -> RegionView:
        return self.plan.region_of_channel[int(self.plan.channel_of[agent])]

    def _resources(self, region: str) -> IntArray:
        place = next(place for place in self._crowd.members if place[0] == region)
        return self._owner(self.tags.index(self._crowd.members[place][0])).resources

    def begin(self) -> Mapping[str, RegionUpdate]:
        """Return the prices and the holders of each region's resources."""
        auction = self.sale.auction
        posted, holder = np.where(auction.is_sold, _SOLD, auction.prices), auction.holder
        return {
            region: RegionUpdate(
                [self.tags[agent] if agent >= 0 else None for agent in holder[rows].tolist()],
                call=self.sale.call.number,
                prices=posted[rows].tolist(),
            )
            for region, rows in self.region.items()
        }

    def close(self, slot: int, said: Sequence[Accepted]) -> tuple[Mapping[str, RegionUpdate], bool]:
        """Let the highest offers hold; end a call when every agent holds something or gave up, or at the deadline.

        Which agents gave up is not said, but follows from their silence for some slots, so that no call ends because
        bids are lost or late. A slot without any bid is no round: the game goes on as if it had not been.
        """
        sale, could = self.sale, self._could_bid()
        placed = self._bids(said)
        if placed:
            sale.rounds += 1
            resources, offers = map(np.array, zip(*placed.values(), strict=True))
            sale.waiting = sale.auction.place(np.array(list(placed)), resources, offers, sale.rounds)
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

    def _could_bid(self) -> NDArray[np.bool_]:
        """Return which agents hold nothing, and have anything on their list that is not sold for good."""
        is_sold = self.sale.auction.is_sold
        on_offer = [not is_sold[rows].all() for rows in self.listed]
        return self.sale.auction.wants & np.array(on_offer, dtype=np.bool_)[self.channel_of]

    def _bids(self, said: Sequence[Accepted]) -> dict[int, tuple[int, float]]:
        """Return the resource and the offer of each agent that holds nothing and offers more than the price."""
        auction, found = self.sale.auction, dict[int, tuple[int, float]]()
        prices, is_sold, wants = auction.prices, auction.is_sold, auction.wants
        for one in said:
            assert isinstance(one.message, m.Bid)
            agent, resource = self.agent[one.tag], self.row.get(one.resource or "", -1)
            price = prices[resource] if resource in self.offered[self.channel_of[agent]] else np.inf
            if not is_sold[resource] and one.message.offer > price and wants[agent]:
                found.setdefault(agent, (resource, one.message.offer))
        return found

    def _call_ends(self, slots: int) -> bool:
        """Sell what is held for good, and offer the rest for nothing; tell whether that was the last call."""
        sale = self.sale
        sold = sale.auction.end_phase()
        if (sale.call.number > 0 and not sold) or not self._could_bid().any():
            return True
        sale.call = sale.call.following()
        sale.deadline = slots + sale.call.patience
        sale.silent, sale.waiting = np.zeros_like(sale.silent), True
        sale.enough[:] = _GIVEN_UP
        sale.auction.reopen()
        return False

    def outcome(self) -> Outcome:
        """Return what is held; the reports have stayed on the devices."""
        ids, auction = self.map.resources.ids, self.sale.auction
        holders = {ids[row]: self.tags[agent] for row, agent in enumerate(auction.holder.tolist()) if agent >= 0}
        return Outcome(holders, dict(zip(ids, auction.prices.tolist(), strict=True)), {})
