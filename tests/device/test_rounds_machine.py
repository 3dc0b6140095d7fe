"""PALMA on devices: the kernel's game bit for bit, prices that are checked, restarts that draw nothing again."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import palmatch as pm
from palmatch.device.agent import UNIT, Agent
from palmatch.device.charges import RoundsTable, budget_units, check_rounds_table
from palmatch.device.distribution import GRID
from palmatch.device.grid import Partition, Place
from palmatch.device.ledger import Ledger, units_of
from palmatch.device.records import Bulletin, Claim, Count, Handover, Open, Roster
from palmatch.device.rounds import RoundsMachine
from palmatch.device.state import Owner
from palmatch.errors import Refused
from palmatch.neighbourhood import Neighbourhood, neighbourhood
from palmatch.policies.noise import PublicPlay, public_play
from palmatch.policies.published import SPENT_BACKOFF, Policy, on_grid, published
from palmatch.privacy.accountants import Allowance
from palmatch.privacy.sound import region_account, rounded_down, sound_allowance
from palmatch.rounds.draws import draw, keys_of, streams
from palmatch.rounds.game import rules_of, simulate
from palmatch.rounds.seat_game import simulate_seats
from palmatch.rounds.tables import public_tables, snapped_tables

from .games import ROOT, MemoryStore, shown

PARTITION = Partition(1000.0, 100.0, 41.0, -74.0)
POLICY = replace(published(truth_selection=0.2, truth_backoff=0.3, gamma=0.1), spent_backoff=SPENT_BACKOFF)


def town(seed: int, agents: int = 12, types: int = 6, resources: int = 7, demand: Any = None) -> pm.Problem:
    chance = np.random.default_rng(seed)
    possible = {name: chance.uniform(0.1, 1.0, (types, resources)) for name in ("here", "there")}
    names = [("here", "there")[n % 2] for n in range(agents)]
    rows = np.array([possible[name][n % types] for n, name in enumerate(names)])
    return pm.table.problem(rows, names, possible, demand=demand)


def table_of(region: Neighbourhood, play: PublicPlay, policy: Policy, epsilon: float, prices: Any) -> RoundsTable:
    """A region's public tables as a board would publish them; `prices` has selection and backoff in units."""
    names = tuple(f"r{row}" for row in region.resources.tolist())
    return RoundsTable(
        game="g",
        region=str(region.region),
        epsilon=epsilon,
        resources=names,
        listed=shown(names),
        utilities=tuple(map(tuple, region.utilities.tolist())),
        offsets=tuple(region.offsets.tolist()),
        entries=tuple(region.entries.tolist()),
        selection=tuple(play.selection.tolist()),
        backoff=tuple(play.backoff.tolist()),
        truth_selection=on_grid(policy.truth_selection),
        truth_backoff=on_grid(policy.truth_backoff),
        gamma=policy.gamma,
        spent_backoff=on_grid(policy.spent_backoff),
        selection_units=tuple(prices[0]),
        backoff_units=tuple(prices[1]),
    )


class Town:
    """A problem with its public tables, its allowance by pure accounts, and the tables that devices are given."""

    def __init__(self, problem: pm.Problem, epsilon: float) -> None:
        self.problem, self.epsilon = problem, epsilon
        self.holder: dict[str, str] = {}
        self.regions = [neighbourhood(problem, region) for region in problem.regions]
        self.plays = [
            public_play(region, selection="representative", backoff="representative", gamma=POLICY.gamma)
            for region in self.regions
        ]
        accounts = [
            region_account(region, play, POLICY, "pure", epsilon=epsilon, delta=1e-5)
            for region, play in zip(self.regions, self.plays, strict=True)
        ]
        budget = np.full(problem.agents, epsilon)
        self.allowance: Allowance = sound_allowance(accounts, problem.region_index, budget, delta=1e-5)
        ranks = np.cumsum([region.ranks for region in self.regions])[:-1]
        entries = np.cumsum([len(region.entries) for region in self.regions])[:-1]
        units = zip(np.split(self.allowance.selection, ranks), np.split(self.allowance.backoff, entries), strict=True)
        self.tables = [
            table_of(region, play, POLICY, epsilon, [part.tolist() for part in prices])
            for region, play, prices in zip(self.regions, self.plays, units, strict=True)
        ]

    def batch(self, seed: int) -> Any:
        public = public_tables(self.problem, self.regions, self.plays)
        own = snapped_tables(self.problem, self.regions)
        names = streams(seed, keys_of(self.problem.agent_ids))
        if self.problem.seats is not None:
            seats = self.problem.seats
            return simulate_seats(public, own, rules_of(POLICY), self.allowance, seats=seats, names=names)
        return simulate(public, own, rules_of(POLICY), self.allowance, names=names)

    def spot(self, agent: int) -> int:
        types = self.regions[self.problem.region_index[agent]].types
        return int(np.abs(types - self.problem.types[agent]).sum(axis=1).argmin())


def opening(town: Town, machines: list[RoundsMachine]) -> list[list[Any]]:
    """Let all devices join and get their tables; return what each then claims."""
    counts = np.bincount(town.problem.region_index)
    opened = Open(1, "g", "rounds", PARTITION, (town.epsilon,), ROOT, 0.0, 1.0, 1000, demand=9)
    roster = Roster(
        "g",
        tuple(
            Count(table.region, town.epsilon, int(count), f"t {table.region}")
            for table, count in zip(town.tables, counts, strict=True)
        ),
        tuple((machine.owner.tag, machine.owner.demand) for machine in machines if machine.owner.demand > 1),
    )
    claims = []
    for machine, region in zip(machines, town.problem.region_index, strict=True):
        machine.receive(opened, "o")
        machine.receive(roster, "r")
        claims.append(
            [send.message for send in machine.receive(town.tables[region], f"t {town.tables[region].region}")]
        )
    return claims


def play(town: Town, machines: list[RoundsMachine]) -> tuple[list[int], int]:
    """A board that counts claims and publishes bulletins; who ends with what, and after how many slots."""
    claims = opening(town, machines)
    holder: dict[str, str] = {}
    digests: dict[str, str] = {}
    slot = 0
    while not all(machine.done for machine in machines):
        slot += 1
        made = [message for sent in claims for message in sent if isinstance(message, Claim)]
        assert all(message.sequence == slot for message in made)
        attempts: dict[str, list[str]] = {}
        for message in made:
            attempts.setdefault(message.resource, []).append(message.tag)
        holder |= {resource: tags[0] for resource, tags in attempts.items() if len(tags) == 1}
        claims = []
        for machine, region in zip(machines, town.problem.region_index, strict=True):
            table = town.tables[region]
            bulletin = Bulletin(
                "g",
                table.region,
                slot,
                digests.get(table.region, ""),
                tuple(holder.get(resource) for resource in table.resources),
                attempted=tuple(resource in attempts for resource in table.resources),
            )
            claims.append([send.message for send in machine.receive(bulletin, f"b{slot}")])
        digests = dict.fromkeys([table.region for table in town.tables], f"b{slot}")
    town.holder = holder
    return [next((int(r[1:]) for r, tag in holder.items() if tag == m.owner.tag), -1) for m in machines], slot


def draw_of_unit(own: int, step: int, purpose: int) -> int:
    """The draws of the batch: those of the agent for its first unit, and of a stream of its own for each other one."""
    unit, purpose = divmod(purpose, UNIT)
    return draw(int(streams(unit, np.array([own], dtype=np.uint64))[0]) if unit else own, step, purpose)


def machines_of(town: Town, seed: int, stores: list[Any]) -> list[RoundsMachine]:
    names = streams(seed, keys_of(town.problem.agent_ids))
    return [
        RoundsMachine(
            Owner(
                "wish",
                Place(str(town.regions[town.problem.region_index[n]].region), town.spot(n)),
                PARTITION,
                len(town.regions[0].types),
                town.epsilon,
                f"tag {n}",
                demand=int(town.problem.demand[n]),
            ),
            stores[n],
            draw=partial(draw_of_unit, int(names[n])),
        )
        for n in range(town.problem.agents)
    ]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_devices_play_the_game_of_the_batch_with_the_same_charges(seed: int, epsilon: float) -> None:
    town_ = Town(town(seed), epsilon)
    stores = [MemoryStore(units_of(100.0)) for _ in range(town_.problem.agents)]
    machines = machines_of(town_, seed, stores)
    resource_of, slots = play(town_, machines)
    batch = town_.batch(seed)
    assert resource_of == batch.resource_of.tolist()
    assert slots == batch.steps
    assert [machine.spent for machine in machines] == batch.spent.tolist()
    assert [machine.actions for machine in machines] == batch.charged.tolist()
    assert [store.spent for store in stores] == batch.spent.tolist()


def units_of_tags(town_: Town) -> list[list[int]]:
    """(agent, resource) of everything that is held."""
    return sorted([int(tag.split()[1]), int(resource[1:])] for resource, tag in town_.holder.items())


DEMANDS = [number % 3 + 1 for number in range(12)]


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_devices_that_die_before_every_record_play_the_same_game(seed: int, several: bool) -> None:
    town_ = Town(town(seed, resources=14, demand=DEMANDS) if several else town(seed), 4.0)
    stores = [MemoryStore(units_of(100.0)) for _ in range(town_.problem.agents)]

    class Mortal:
        """A device that dies after every record and is made again from its ledger."""

        def __init__(self, number: int) -> None:
            self.number, self.before = number, []
            self.machine = machines_of(town_, seed, stores)[number]
            self.owner = self.machine.owner

        def receive(self, record: Any, digest: str) -> Any:
            self.machine = machines_of(town_, seed, stores)[self.number]
            for known in self.before:
                self.machine.receive(*known)
            if not isinstance(record, Bulletin):
                self.before.append((record, digest))
            return self.machine.receive(record, digest)

        @property
        def done(self) -> bool:
            return self.machine.done

    resource_of, _ = play(town_, [Mortal(n) for n in range(town_.problem.agents)])  # type: ignore[misc]
    batch = town_.batch(seed)
    if several:
        assert units_of_tags(town_) == sorted(batch.resource_of.tolist())
    else:
        assert resource_of == batch.resource_of.tolist()
    assert [store.spent for store in stores] == batch.spent.tolist()


def test_a_restart_claims_the_same_whatever_chance_says_then(tmp_path: Path) -> None:
    town_ = Town(town(1), 4.0)
    found = set()
    for number in range(10):
        with Ledger(tmp_path / "a.ledger", agent="a", lifetime=units_of(10.0)) as ledger:
            machine = machines_of(town_, number, [ledger] * town_.problem.agents)[0]
            found.add((tuple(first_claims(town_, machine)), ledger.spent()))
    assert len(found) == 1


def first_claims(town_: Town, machine: RoundsMachine) -> list[Any]:
    opened = Open(1, "g", "rounds", PARTITION, (town_.epsilon,), ROOT, 0.0, 1.0, 1000)
    table = town_.tables[0]
    machine.receive(opened, "o")
    machine.receive(Roster("g", (Count(table.region, town_.epsilon, 6, "t"),)), "r")
    return [send.message for send in machine.receive(table, "t")]


def test_an_agent_whose_ledger_is_spent_by_another_program_plays_noise_and_charges_nothing_more() -> None:
    town_ = Town(town(2), 4.0)

    class Spent(MemoryStore):
        def remaining(self) -> int:
            return units_of(100.0)  # when the game opened there was budget

    stores: list[Any] = [Spent(0)] + [MemoryStore(units_of(100.0)) for _ in range(town_.problem.agents - 1)]
    machines = machines_of(town_, 2, stores)
    play(town_, machines)
    assert stores[0].charges == [0] * len(stores[0].charges)
    assert machines[0].units
    assert machines[0].units[0].exhausted


def test_an_agent_whose_ledger_is_spent_in_the_middle_of_a_game_never_acts_on_the_truth_unpaid() -> None:
    interrupted = 0
    for seed in range(12):
        town_ = Town(town(seed), 4.0)
        # Another program has left room for the first pick, and for nothing else.
        room = int(town_.tables[town_.problem.region_index[0]].selection_units[0])

        class Spent(MemoryStore):
            def remaining(self) -> int:
                return units_of(100.0)

        stores: list[Any] = [Spent(room)] + [MemoryStore(units_of(100.0)) for _ in range(town_.problem.agents - 1)]
        machines = machines_of(town_, seed, stores)
        play(town_, machines)
        agent = machines[0].units[0]
        assert agent is not None
        assert agent.spent == sum(stores[0].charges) == room
        interrupted += agent.exhausted
    assert interrupted


# An agent that has spent its budget never acts on the truth again


class Forgetful(Agent):
    """A planted bug: an agent that could not pay asks again at the next action, which may be cheaper."""

    def _may_act_on_the_truth(self, units: int) -> bool:
        self.exhausted = False
        return super()._may_act_on_the_truth(units)


def acts_on_the_truth_again(kind: type[Agent]) -> bool:
    """Whether an agent that could not pay for a selection pays for a later action that costs less."""
    table = Town(town(3), 1.0).tables[0]
    dear, cheap = [10] * (len(table.offsets) - 1), [1] * len(table.entries)
    tables = replace(table.region_tables(), first_units=10, selection_units=dear, backoff_units=cheap)
    agent = kind(tables, table.utilities[0], 5, rules=table.rules(), draw=lambda _step, _purpose: 0)
    assert agent.spent == 0
    agent.collided(1)
    return agent.spent > 0


def test_an_agent_that_could_not_pay_once_never_pays_again() -> None:
    assert not acts_on_the_truth_again(Agent)
    assert acts_on_the_truth_again(Forgetful)


class Skipping(Agent):
    """A planted bug: an agent that still pays passes over what is held, with chances that its price is not for."""

    def _select(self, step: int, units: int, held: Container[int] = ()) -> int:
        super()._select(step, units, held)
        return self._next_unheld(self.draw(step, 1), held)


def looks(kind: type[Agent], budget: int, held: set[int]) -> list[int]:
    """What an agent that plays the region's noise looks at, for draws from the whole grid."""
    table = Town(town(3), 1.0).tables[0]
    rules, seen = replace(table.rules(), truth_selection=0), []
    assert rules.spent_backoff > 0
    for value in range(0, GRID, GRID // 64):
        agent = kind(table.region_tables(), table.utilities[0], budget, rules=rules, draw=lambda *_, v=value: v)
        agent.attempting = False
        seen.append(agent.decide(1, held).resource)
    return seen


def test_an_agent_that_still_pays_passes_over_nothing() -> None:
    rich = 2**60
    some = {looks(Agent, rich, set())[0]}
    assert looks(Agent, rich, some) == looks(Agent, rich, set())
    assert looks(Agent, 0, some) != looks(Agent, 0, set())
    assert looks(Skipping, rich, some) != looks(Skipping, rich, set())


# Charges


def refused(table: RoundsTable) -> str | None:
    try:
        check_rounds_table(table, epsilon=table.epsilon, spots=len(table.utilities))
    except Refused as refusal:
        return refusal.code
    return None


@pytest.mark.parametrize("seed", range(8))
def test_prices_of_the_pure_account_are_accepted_and_cheaper_ones_refused(seed: int) -> None:
    random = Random(seed)
    for table in Town(town(seed, types=random.randint(2, 9)), 1.0).tables:
        assert refused(table) is None
        for name in ("selection_units", "backoff_units"):
            prices = list(getattr(table, name))
            place = random.randrange(len(prices))
            if prices[place] > 100:
                prices[place] = int(prices[place] * (1 - 1e-6)) - 2
                assert refused(replace(table, **{name: tuple(prices)})) == "charge"
        free = replace(table, selection_units=(0,) * len(table.selection_units))
        assert refused(free) == "charge"


def test_prices_of_a_real_square_are_accepted() -> None:
    morning = pm.data.city.batch(8.0, seed=1)
    problem = pm.mobility.problem(morning.requests[:20], morning.vehicles[:25], edge=1000.0, spacing=250.0)
    for table in Town(problem, 1.0).tables[:3]:
        assert refused(table) is None


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("epsilon", {"epsilon": 2.0}),
        ("shape", {"offsets": (0, 0)}),
        ("shape", {"selection_units": ()}),
        ("range", {"truth_selection": -1}),
        ("range", {"spent_backoff": 2**54}),
        ("value", {"gamma": float("nan")}),
    ],
)
def test_a_malformed_table_of_rounds_is_refused(code: str, changes: dict[str, Any]) -> None:
    table = Town(town(5), 1.0).tables[0]
    with pytest.raises(Refused) as refusal:
        check_rounds_table(replace(table, **changes), epsilon=1.0, spots=len(table.utilities))
    assert refusal.value.code == code


def test_a_board_that_says_the_device_holds_what_it_did_not_claim_is_refused() -> None:
    town_ = Town(town(6), 1.0)
    machine = machines_of(town_, 0, [MemoryStore(units_of(9.0))] * town_.problem.agents)[0]
    claimed = [message.resource for message in first_claims(town_, machine) if isinstance(message, Claim)]
    table = town_.tables[0]
    holders = tuple(None if r in claimed else "tag 0" for r in table.resources)
    bulletin = Bulletin("g", table.region, 1, "", holders, attempted=(True,) * len(holders))
    with pytest.raises(Refused, match="did not claim"):
        machine.receive(bulletin, "b1")


def test_a_device_that_won_hands_over_also_after_a_restart() -> None:
    town_ = Town(town(7), 1.0)
    store = MemoryStore(units_of(9.0))
    machine = machines_of(town_, 0, [store] * town_.problem.agents)[0]
    (claim,) = first_claims(town_, machine)
    table = town_.tables[0]
    holders = tuple("tag 0" if r == claim.resource else None for r in table.resources)
    bulletin = Bulletin("g", table.region, 1, "", holders, attempted=tuple(tag is not None for tag in holders))
    assert [send.message for send in machine.receive(bulletin, "b1")] == [Handover("g", "tag 0", claim.resource)]
    again = machines_of(town_, 1, [store] * town_.problem.agents)[0]
    assert first_claims(town_, again) == [Handover("g", "tag 0", claim.resource)]


def test_a_budget_is_worth_to_the_device_what_it_is_worth_to_the_batch() -> None:
    for epsilon in (0.0, 1e-9, 0.3, 1.0, 7.7):
        assert budget_units(epsilon) == int(rounded_down(np.array([epsilon]))[0])
