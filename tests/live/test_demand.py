"""Agents that want several resources, on the board's side: prices that support units, bids, and what the wire says."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import cbor2
import numpy as np
import pytest
from msgspec import UNSET

from live.examples import PARTITION
from palmatch.data.points import Points
from palmatch.device.records import Assigned, Result
from palmatch.device.report import ReportTable
from palmatch.device.result import check_result
from palmatch.device.units import base_of
from palmatch.errors import InputError, Refused
from palmatch.live import messages as m
from palmatch.live.bid_rules import BidRules
from palmatch.live.codec import body_of
from palmatch.live.maps import Map
from palmatch.live.records import partition_record
from palmatch.live.rounds_rules import RoundsRules
from palmatch.live.rules import opening_of, refuse_demand
from palmatch.live.support import UNIT_SLACK, matched_units
from palmatch.live.terms import Crowd, Outcome, Said
from palmatch.live.transcripts import transcripts
from palmatch.methods.workspace import Settings
from palmatch.rounds.auction import ValueLists
from palmatch.rounds.draws import keys_of, streams

GRID = partition_record(PARTITION)


def resources(names: tuple[str, ...]) -> Points:
    places = {name: (40.75 + 0.001 * row, -73.99) for row, name in enumerate(dict.fromkeys(map(base_of, names)))}
    at = np.array([places[base_of(name)] for name in names])
    return Points("", names, at[:, 0], at[:, 1], None, None, ())


class Case:
    """Reports of a few agents at random, some alike, for seats of a few resources, with demands."""

    def __init__(self, number: int) -> None:
        random = np.random.default_rng(number)
        bases, agents, reports = int(random.integers(1, 5)), int(random.integers(1, 5)), 3
        counts = random.integers(1, 3, bases)
        self.names = tuple(f"r{b}#{s + 1}" if n > 1 else f"r{b}" for b, n in enumerate(counts) for s in range(n))
        worth = np.round(random.uniform(0.05, 1.0, (reports, bases)), 1 if number % 2 else 6)
        self.values = np.repeat(worth, counts, axis=1)
        self.reports, self.demand = random.integers(0, reports, agents), random.integers(1, 4, agents)
        self.place = Map(GRID, resources(self.names))
        rows = len(self.names)
        self.lists = ValueLists(
            list_of=self.reports,
            start=np.arange(reports + 1) * rows,
            resources=np.tile(np.arange(rows), reports),
            values=self.values.ravel(),
        )
        ids = [f"a{agent}" for agent in range(agents)]
        region = "0,-28"
        self.problem = self.place.problem([region] * agents, ids, [1.0] * agents, self.demand.tolist())
        self.streams = streams(number, keys_of(ids))

    def best(self) -> float:
        """The largest sum of values, by trying everything."""
        found = {(0,) * len(self.names): 0.0}
        for report, demand in zip(self.reports, self.demand, strict=True):
            sets = [some for size in range(demand + 1) for some in combinations(range(len(self.names)), size)]
            sets = [some for some in sets if len({base_of(self.names[r]) for r in some}) == len(some)]
            following: dict[tuple[int, ...], float] = {}
            for taken, worth in found.items():
                for some in sets:
                    if not any(taken[r] for r in some):
                        key = tuple(int(t or r in some) for r, t in enumerate(taken))
                        value = worth + sum(self.values[report, r] for r in some)
                        following[key] = max(value, following.get(key, 0.0))
            found = following
        return max(found.values())


@pytest.mark.parametrize("number", range(60))
def test_units_of_reports_are_optimal_and_devices_accept_their_prices_and_no_others(number: int) -> None:
    case = Case(number)
    if case.problem.seats is None:
        return
    units, prices = matched_units(case.problem, case.lists, case.streams, case.place.seats)
    assert len(set(units[:, 1].tolist())) == len(units)
    got: dict[int, list[str]] = {agent: [] for agent in range(len(case.reports))}
    for agent, row in units.tolist():
        got[agent].append(case.names[row])
    assert all(len(set(map(base_of, names))) == len(names) <= case.demand[agent] for agent, names in got.items())
    reached = sum(case.values[case.reports[agent], row] for agent, row in units.tolist())
    assert reached == pytest.approx(case.best(), abs=1e-9)
    lines = [
        Assigned(f"a{agent}", "r", 1.0, "t", int(case.reports[agent]), name, int(case.demand[agent]))
        for agent, names in got.items()
        for name in names or [None]
    ]
    table: Any = ReportTable("g", "r", 1.0, case.names, (0,), ((1, 1, 1),), tuple(map(tuple, case.values)), ())
    demands = tuple((f"a{agent}", int(demand)) for agent, demand in enumerate(case.demand) if demand > 1)

    def check(assigned: list[Assigned]) -> None:
        result = Result("g", tuple(assigned), tuple(zip(case.names, prices.tolist(), strict=True)))
        facts = {"agents": len(case.reports), "slack": UNIT_SLACK, "tag": "a0", "demands": demands}
        check_result(result, table, "t", **facts)

    check(lines)
    # Whatever is worth anything at its price cannot be taken away: what no agent has would cost nothing.
    for place, one in enumerate(lines):
        if one.resource is not None and case.values[one.report, case.names.index(one.resource)] > 0.01:
            taken = [*lines[:place], *lines[place + 1 :]]
            alone = not any(other.tag == one.tag for other in taken)
            with pytest.raises(Refused):
                check([*taken, Assigned(one.tag, "r", 1.0, "t", one.report, None, one.demand)] if alone else taken)


def test_near_ties_leave_no_more_than_the_slack() -> None:
    random = np.random.default_rng(5)
    for number in range(30):
        case = Case(100 + number)
        if case.problem.seats is not None:
            near = 0.5 + 1e-7 * random.standard_normal(case.lists.values.shape)
            lists = ValueLists(case.lists.list_of, case.lists.start, case.lists.resources, near)
            matched_units(case.problem, lists, case.streams, case.place.seats)


# Bids


def bidding() -> tuple[BidRules, list[bytes]]:
    rules = BidRules(Map(GRID, resources(("v#1", "v#2", "w", "x"))), Settings())
    tags = [bytes([number]) * 8 for number in (1, 2)]
    members = {("0,-28", 0): tuple(tags)}
    rules.tables(Crowd("g", bytes(32), (1.0,), members, bytes(32), {tags[0]: 2}))
    return rules, tags


def offers(tag: bytes, **amounts: float) -> list[Said]:
    names = {"v1": "v#1", "v2": "v#2"}
    return [
        Said(tag, m.Bid(sequence=1, tag=tag, offer=offer), names.get(name, name)) for name, offer in amounts.items()
    ]


@pytest.mark.parametrize(
    ("said", "held"),
    [
        ({"v1": 2.0, "w": 2.0}, {"v#1", "w"}),
        # Two seats of one resource, or more than it wants: what came later does not count.
        ({"v1": 2.0, "v2": 2.0}, {"v#1"}),
        ({"v1": 2.0, "w": 2.0, "x": 2.0}, {"v#1", "w"}),
    ],
)
def test_a_client_holds_no_more_than_its_demand_and_one_seat_of_a_resource(
    said: dict[str, float], held: set[str]
) -> None:
    rules, tags = bidding()
    rules.close(0, offers(tags[0], **said))
    assert {name for name, tag in rules.outcome().holders.items() if tag == tags[0]} == held
    # Neither in a later slot.
    rules.close(1, offers(tags[0], v2=3.0, x=3.0))
    later = {name for name, tag in rules.outcome().holders.items() if tag == tags[0]}
    assert len(later) <= 2
    assert not {"v#1", "v#2"} <= later


def test_an_agent_that_is_outbid_wants_one_more() -> None:
    rules, tags = bidding()
    # The other agent bids in vain, so that the call goes on.
    rules.close(0, [*offers(tags[0], v1=2.0, w=2.0), *offers(tags[1], w=1.5)])
    rules.close(1, offers(tags[1], w=3.0))
    rules.close(2, offers(tags[0], x=2.0))
    assert rules.outcome().holders == {"v#1": tags[0], "w": tags[1], "x": tags[0]}


# Claims


def test_a_client_claims_no_more_than_its_demand_and_one_seat_of_a_resource() -> None:
    rules = RoundsRules(Map(GRID, resources(("v#1", "v#2", "w", "x"))), Settings())
    tags = [bytes([number]) * 8 for number in (1, 2)]
    rules.tables(Crowd("g", bytes(32), (1.0,), {("0,-28", 0): tuple(tags)}, bytes(32), {tags[0]: 2}))

    def claims(tag: bytes, *names: str) -> list[Said]:
        return [Said(tag, m.Claim(sequence=1, tag=tag), name) for name in names]

    regional, over = rules.close(0, claims(tags[0], "v#1", "v#2", "w", "x"))
    assert rules.outcome().holders == {"v#1": tags[0], "w": tags[0]}
    assert not over
    # What was not counted does not show, and what the agent holds is enough.
    assert [*regional["0,-28"].attempted] == [True, False, True, False]
    assert not rules.close(1, claims(tags[0], "x"))[1]
    # The second agent wants one, and then no agent has anything to hope for, though a seat is free.
    assert rules.close(2, claims(tags[1], "v#2", "x"))[1]
    assert rules.outcome().holders == {"v#1": tags[0], "w": tags[0], "v#2": tags[1]}


def test_the_end_of_a_game_is_not_looked_for_among_agents_that_hold_what_they_want(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = tuple(f"v{number}" for number in range(80))
    rules = RoundsRules(Map(GRID, resources(names)), Settings())
    tags = [bytes([number]) * 8 for number in range(1, 41)]
    rules.tables(Crowd("g", bytes(32), (1.0,), {("0,-28", 0): tuple(tags)}, bytes(32)))
    asked, may_claim = [], rules._may_claim
    monkeypatch.setattr(rules, "_may_claim", lambda *given: asked.append(given) or may_claim(*given))
    said = [Said(tag, m.Claim(sequence=1, tag=tag), name) for tag, name in zip(tags, names, strict=False)]
    assert not rules.close(0, said[:-1])[1]
    assert len(asked) == len(tags)
    assert rules.close(1, said[-1:])[1]
    assert len(asked) == len(tags) + 1


# What is refused before a game starts, and what the wire says


def opening(names: tuple[str, ...], protocol: Any, demand: int, interest: int | None = None) -> Any:
    place = Map(GRID, resources(names), interest=interest)
    return opening_of(protocol, place, (1.0,), b"k", joining=1, preparing=1, slot=1, slots=9, demand=demand)


@pytest.mark.parametrize(
    ("protocol", "demand", "interest", "why"),
    [
        ("report", 0, None, "between 1 and 255"),
        ("bids", 256, None, "between 1 and 255"),
        ("report", 2, 1, "leave the interest out"),
    ],
)
def test_what_cannot_be_played_is_refused_before_the_game_starts(
    protocol: Any, demand: int, interest: int | None, why: str
) -> None:
    with pytest.raises(InputError, match=why):
        opening(("v#1", "v#2", "w"), protocol, demand, interest)


def test_reports_for_demands_are_refused_for_too_many_resources() -> None:
    place = Map(GRID, resources(tuple(f"v{number}" for number in range(5001))))
    with pytest.raises(InputError, match="at most 5,000 resources, and here are 5,001"):
        refuse_demand("report", place, 2)
    refuse_demand("report", place, 1)
    refuse_demand("bids", place, 2)


def test_reports_for_demands_are_refused_for_too_many_pairs_of_agent_and_resource() -> None:
    place = Map(GRID, resources(tuple(f"v{number}" for number in range(2000))))
    with pytest.raises(InputError, match="at most 2,000,000 pairs of agent and resource, and here are 2,002,000"):
        refuse_demand("report", place, 2, 1001)
    refuse_demand("report", place, 2, 1000)
    refuse_demand("report", place, 1, 1001)
    refuse_demand("bids", place, 2, 1001)
    # Where agents are not known beforehand, so many may join.
    assert opening(place.resources.ids, "report", 2).agents == 1000
    assert opening(place.resources.ids, "report", 1).agents is opening(place.resources.ids, "bids", 2).agents is None


def test_resources_that_only_look_like_seats_of_one_are_refused_where_that_matters() -> None:
    listed = resources(("v#1", "v#2", "w"))
    apart = replace(listed, latitude=np.array([40.75, 40.76, 40.77]))
    refuse_demand("bids", Map(GRID, listed), 2)
    refuse_demand("bids", Map(GRID, apart), 1)
    with pytest.raises(InputError, match="v#1 and v#2 are seats of one resource, but at different places: rename"):
        refuse_demand("bids", Map(GRID, apart), 2)


def test_a_game_of_ones_says_nothing_of_demands() -> None:
    assert opening(("v", "w"), "report", 1).slack == 1e-9
    token = m.Token(prefix=bytes(32), signature=bytes(256))
    joins = {bytes([n]) * 8: m.Join(token=token, key=bytes(32), region="r", epsilon_class=0) for n in (1, 2)}
    first = next(iter(joins))
    for demand in (1, 2):
        if demand == 2:
            joins[first] = m.Join(token=token, key=bytes(32), region="r", epsilon_class=0, demand=2)
        found = dict(transcripts("once", joins, {"r": ("v", "w")}, Outcome({"v": first, "w": first}, {}, {})))["r"]
        said = [cbor2.loads(body_of(message)) for message in (found, joins[first])]
        assert [bool({"demand", "demands"} & fields.keys()) for fields in said] == [demand == 2] * 2
    assert m.demands_of(found) == [2, 2, 1]
    assert m.packed_demands([1, 1]) is UNSET


def test_demands_that_do_not_fit_their_lines_are_those_of_no_agent() -> None:
    listed = m.Members(region="r", tags=bytes(16), classes=bytes(2), demands=b"\x02")
    assert m.demands_of(listed) == [0, 0]
