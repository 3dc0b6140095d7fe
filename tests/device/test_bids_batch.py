"""Devices that bid play the game of `once` bit for bit, from positions in degrees to the last call."""

from functools import partial
from math import inf

import numpy as np
import pytest

import palmatch as pm
from palmatch.device.bid import Call
from palmatch.device.grid import locate
from palmatch.device.ledger import epsilon_of, units_of
from palmatch.device.messages import VERSION
from palmatch.device.records import Bid, Bulletin, Count, Open, Report, ReportTable, Roster
from palmatch.device.state import BidMachine, Owner, ReportMachine
from palmatch.methods.reports import ReportPlan, draw_reports, reporting
from palmatch.methods.workspace import Settings, Workspace
from palmatch.streams import SELECTION, Randomness, draw

from .games import ROOT, MemoryStore, shown

EDGE, EPSILON = 1000.0, 1.0


class Morning:
    """A batch, its public tables as records, and one device for each agent."""

    def __init__(self, agents, vehicles, *, protocol, seed):
        batch = pm.data.city.batch(8.0, seed=1)
        self.positions = np.asarray(batch.requests)[:agents, :2]
        self.problem = pm.mobility.problem(batch.requests[:agents], batch.vehicles[:vehicles], edge=EDGE, spacing=250.0)
        workspace = Workspace(self.problem)
        self.plan: ReportPlan = reporting(workspace, Settings(epsilon=EPSILON))
        self.chance: Randomness = workspace.randomness(seed)
        self.opened = Open(
            VERSION,
            "g",
            protocol,
            self.problem.domain.partition(EDGE),
            (0.0, EPSILON),
            ROOT,
            0.0,
            1.0,
            1000,
            self.plan.step,
            self.plan.patience,
        )
        self.tables = [self._table(number) for number in range(len(self.plan.channels))]
        counts = np.bincount(self.plan.channel_of)
        lines = zip(self.tables, counts.tolist(), strict=True)
        self.roster = Roster("g", tuple(Count(t.region, EPSILON, n, f"t {t.region}") for t, n in lines))
        self.stores = [MemoryStore(units_of(5.0)) for _ in range(self.problem.agents)]
        machine = BidMachine if protocol == "bids" else ReportMachine
        self.machines = [machine(self._owner(n), self.stores[n], draw=self._draw(n)) for n in range(agents)]

    def _table(self, number):
        channel, region = self.plan.channels[number], self.plan.region_of_channel[number]
        names = tuple(f"r{row}" for row in region.resources.tolist())
        return ReportTable(
            game="g",
            region=f"{region.region.column},{region.region.row}",
            epsilon=EPSILON,
            resources=names,
            listed=shown(names),
            cell_of=tuple(channel.cell_of.tolist()),
            chances=tuple(map(tuple, channel.chances.tolist())),
            values=tuple(map(tuple, channel.values.tolist())),
            opening=tuple(self.plan.opening[region.resources].tolist()),
        )

    def _owner(self, agent):
        partition = self.opened.partition
        place = locate(partition, *self.positions[agent].tolist())
        return Owner("wish", place, partition, partition.spots, EPSILON, f"tag {agent}")

    def _draw(self, agent):
        return partial(draw, int(self.chance.private[agent]))

    def began(self):
        """Let every device join and get its table; what it then says."""
        said = []
        for machine, channel in zip(self.machines, self.plan.channel_of, strict=True):
            table = self.tables[channel]
            records = ((self.opened, "o"), (self.roster, "r"), (table, f"t {table.region}"))
            said.append([send.message for record, digest in records for send in machine.receive(record, digest)])
        return said


def auctioned(morning):
    """A board that closes slots as the batch does; who ends with what, and after how many slots."""
    morning.began()
    prices = {f"r{row}": float(price) for row, price in enumerate(morning.plan.opening)}
    holder: dict[str, int] = {}
    slot, call, for_good = 0, Call(0, morning.plan.step, morning.plan.patience), set[str]()
    previous = ""
    while True:
        free = [n for n in range(len(morning.machines)) if n not in {holder[r] for r in for_good}]
        waiting, deadline, before = len(free), slot + call.patience, set(for_good)
        while waiting and slot < deadline:
            bids = said(morning, slot, call.number, prices, holder, previous)
            previous = f"b{slot}"
            slot += 1
            waiting = settle(morning, bids, slot, prices, holder)
        for_good |= holder.keys()
        if not free or (call.number > 0 and for_good == before):
            held = {agent: int(resource[1:]) for resource, agent in holder.items()}
            return [held.get(n, -1) for n in range(len(morning.machines))], slot
        prices = {resource: inf if resource in for_good else 0.0 for resource in prices}
        call = call.following()


def said(morning, slot, call, prices, holder, previous):
    """Publish the bulletin of a slot; the bids that follow."""
    bids = []
    for number, (machine, channel) in enumerate(zip(morning.machines, morning.plan.channel_of, strict=True)):
        table = morning.tables[channel]
        bulletin = Bulletin(
            "g",
            table.region,
            slot,
            previous,
            tuple(f"tag {holder[r]}" if r in holder else None for r in table.resources),
            call,
            tuple(None if prices[r] == inf else prices[r] for r in table.resources),
        )
        bids += [(number, send.message) for send in machine.receive(bulletin, f"b{slot}")]
    return bids


def settle(morning, bids, slot, prices, holder):
    """Give each resource to its highest bid, equal ones by public chance; how many agents now want to bid."""
    ranked = sorted(bids, key=lambda bid: (-bid[1].offer, draw(int(morning.chance.public[bid[0]]), slot, SELECTION)))
    won: dict[str, tuple[int, Bid]] = {}
    for number, bid in ranked:
        assert bid.sequence == slot
        won.setdefault(bid.resource, (number, bid))
    outbid = sum(resource in holder for resource in won)
    for resource, (number, bid) in won.items():
        holder[resource], prices[resource] = number, bid.offer
    return len(bids) - len(won) + outbid


@pytest.mark.parametrize(("agents", "vehicles"), [(40, 40), (40, 15), (25, 60)])
@pytest.mark.parametrize("seed", [1, 2])
def test_devices_that_bid_give_the_matching_of_the_batch(agents, vehicles, seed):
    morning = Morning(agents, vehicles, protocol="bids", seed=seed)
    resource_of, slots = auctioned(morning)
    batch = pm.match(morning.problem, "once", epsilon=EPSILON, seed=seed)
    assert resource_of == batch.resource_of.tolist()
    assert slots == batch.rounds
    assert [epsilon_of(store.spent) for store in morning.stores] == batch.epsilon.tolist()
    assert [len(store.charges) for store in morning.stores] == batch.charged.tolist()


def test_devices_report_what_the_batch_reports():
    morning = Morning(100, 90, protocol="report", seed=3)
    told = [message.report for said in morning.began() for message in said if isinstance(message, Report)]
    assert told == draw_reports(morning.plan, morning.chance).tolist()
    assert len(set(told)) > 1
