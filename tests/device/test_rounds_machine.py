"""PALMA on devices: the kernel's game bit for bit, prices that are checked, restarts that draw nothing again."""

import pickle
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest

import palmatch as pm
from palmatch.device import rounds
from palmatch.device.agent import Agent
from palmatch.device.checks import check_rounds_table
from palmatch.device.distribution import GRID
from palmatch.device.grid import Place
from palmatch.device.ledger import Ledger, units_of
from palmatch.device.messages import VERSION, Partition
from palmatch.device.records import Bulletin, Claim, Count, Handover, Open, Roster, RoundsTable
from palmatch.device.rounds import RoundsMachine, budget_units
from palmatch.device.state import Owner
from palmatch.errors import Refused
from palmatch.palma.accountant import ACCOUNTANTS, PrivacyFilter, privacy_filter, rounded_down
from palmatch.palma.game import rules_of, simulate
from palmatch.palma.policy import SPENT_BACKOFF, published, to_fixed_point
from palmatch.regions.noise import public_tables
from palmatch.regions.own import own_tables
from palmatch.regions.tables import region_tables
from palmatch.streams import draw, keys_of, streams

from .games import ROOT, MemoryStore, shown
from .test_machines import Careless, sent_at

PARTITION = Partition(1000.0, 100.0, (41.0, -74.0))
POLICY = replace(published(truth_selection=0.2, truth_backoff=0.3, gamma=0.1), spent_backoff=SPENT_BACKOFF)


def town(seed, agents=12, types=6, resources=7):
    chance = np.random.default_rng(seed)
    possible = {name: chance.uniform(0.1, 1.0, (types, resources)) for name in ("here", "there")}
    names = [("here", "there")[n % 2] for n in range(agents)]
    rows = np.array([possible[name][n % types] for n, name in enumerate(names)])
    return pm.table.problem(rows, names, possible)


def table_of(region, play, policy, epsilon, prices):
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
        truth_selection=to_fixed_point(policy.truth_selection),
        truth_backoff=to_fixed_point(policy.truth_backoff),
        gamma=policy.gamma,
        spent_backoff=to_fixed_point(policy.spent_backoff),
        selection_units=tuple(prices[0]),
        backoff_units=tuple(prices[1]),
    )


class Town:
    """A problem with its public tables, its allowance by pure accounts, and the tables that devices are given."""

    def __init__(self, problem, epsilon):
        self.problem, self.epsilon = problem, epsilon
        self.regions = region_tables(problem)
        self.public = public_tables(
            self.regions,
            problem.region_index,
            selection="representative",
            backoff="representative",
            gamma=POLICY.gamma,
        )
        self.plays = self.public.plays
        accounts = [
            ACCOUNTANTS["pure"].account(region, play, POLICY, epsilon=epsilon, delta=1e-5)
            for region, play in zip(self.regions, self.plays, strict=True)
        ]
        budget = np.full(problem.agents, epsilon)
        self.allowance: PrivacyFilter = privacy_filter(accounts, problem.region_index, budget, delta=1e-5)
        ranks = np.cumsum([region.ranks for region in self.regions])[:-1]
        entries = np.cumsum([len(region.entries) for region in self.regions])[:-1]
        units = zip(np.split(self.allowance.selection, ranks), np.split(self.allowance.backoff, entries), strict=True)
        self.tables = [
            table_of(region, play, POLICY, epsilon, [part.tolist() for part in prices])
            for region, play, prices in zip(self.regions, self.plays, units, strict=True)
        ]

    def batch(self, seed):
        own = own_tables(self.problem, self.regions, snapped=True)
        names = streams(seed, keys_of(self.problem.agent_ids))
        return simulate(self.public, own, rules_of(POLICY), self.allowance, names=names)

    def spot(self, agent):
        types = self.regions[self.problem.region_index[agent]].types
        return int(np.abs(types - self.problem.types[agent]).sum(axis=1).argmin())


def opening(town, machines):
    """Let all devices join and get their tables; return what each then claims."""
    counts = np.bincount(town.problem.region_index)
    opened = Open(VERSION, "g", "rounds", PARTITION, (town.epsilon,), ROOT, 0.0, 1.0, 1000)
    roster = Roster(
        "g",
        tuple(
            Count(table.region, town.epsilon, int(count), f"t {table.region}")
            for table, count in zip(town.tables, counts, strict=True)
        ),
    )
    claims = []
    for machine, region in zip(machines, town.problem.region_index, strict=True):
        machine.receive(opened, "o")
        machine.receive(roster, "r")
        claims.append(
            [send.message for send in machine.receive(town.tables[region], f"t {town.tables[region].region}")]
        )
    return claims


def play(town, machines):
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
    return [next((int(r[1:]) for r, tag in holder.items() if tag == m.owner.tag), -1) for m in machines], slot


def machines_of(town, seed, stores):
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
            ),
            stores[n],
            draw=partial(draw, int(names[n])),
        )
        for n in range(town.problem.agents)
    ]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_devices_play_the_game_of_the_batch_with_the_same_charges(seed, epsilon):
    town_ = Town(town(seed), epsilon)
    stores = [MemoryStore(units_of(100.0)) for _ in range(town_.problem.agents)]
    machines = machines_of(town_, seed, stores)
    resource_of, slots = play(town_, machines)
    batch = town_.batch(seed)
    assert resource_of == batch.resource_of.tolist()
    assert slots == batch.steps
    assert [machine.agent.actions for machine in machines if machine.agent] == batch.charged.tolist()
    assert [store.spent for store in stores] == batch.spent.tolist()


@pytest.mark.parametrize("seed", range(3))
def test_devices_that_die_before_every_record_play_the_same_game(seed):
    town_ = Town(town(seed), 4.0)
    stores = [MemoryStore(units_of(100.0)) for _ in range(town_.problem.agents)]

    class Mortal:
        """A device that dies after every record and is made again from its ledger."""

        def __init__(self, number):
            self.number, self.before = number, []
            self.machine = machines_of(town_, seed, stores)[number]
            self.owner = self.machine.owner

        def receive(self, record, digest):
            self.machine = machines_of(town_, seed, stores)[self.number]
            for known in self.before:
                self.machine.receive(*known)
            if not isinstance(record, Bulletin):
                self.before.append((record, digest))
            return self.machine.receive(record, digest)

        @property
        def done(self):
            return self.machine.done

    resource_of, _ = play(town_, [Mortal(n) for n in range(town_.problem.agents)])
    batch = town_.batch(seed)
    assert resource_of == batch.resource_of.tolist()
    assert [store.spent for store in stores] == batch.spent.tolist()


def test_a_restart_claims_the_same_whatever_chance_says_then(tmp_path):
    town_ = Town(town(1), 4.0)
    found = set()
    for number in range(10):
        with Ledger(tmp_path / "a.ledger", agent="a", lifetime=units_of(10.0)) as ledger:
            machine = machines_of(town_, number, [ledger] * town_.problem.agents)[0]
            found.add((tuple(first_claims(town_, machine)), ledger.spent()))
    assert len(found) == 1


def start_of(town_, digest="t"):
    """What the devices of the first region are told until they play."""
    opened = Open(VERSION, "g", "rounds", PARTITION, (town_.epsilon,), ROOT, 0.0, 1.0, 1000)
    table = town_.tables[0]
    return [(opened, "o"), (Roster("g", (Count(table.region, town_.epsilon, 6, digest),)), "r"), (table, digest)]


def first_claims(town_, machine, digest="t"):
    before, table = start_of(town_, digest)[:2], start_of(town_, digest)[2]
    for record in before:
        machine.receive(*record)
    return [send.message for send in machine.receive(*table)]


def test_an_agent_whose_ledger_is_spent_by_another_program_plays_noise_and_charges_nothing_more():
    town_ = Town(town(2), 4.0)

    class Spent(MemoryStore):
        def remaining(self):
            return units_of(100.0)  # when the game opened there was budget

    stores: list[Any] = [Spent(0)] + [MemoryStore(units_of(100.0)) for _ in range(town_.problem.agents - 1)]
    machines = machines_of(town_, 2, stores)
    play(town_, machines)
    assert stores[0].charges == [0] * len(stores[0].charges)
    assert machines[0].agent.exhausted


def test_an_agent_whose_ledger_is_spent_in_the_middle_of_a_game_never_acts_on_the_truth_unpaid():
    interrupted = 0
    for seed in range(12):
        town_ = Town(town(seed), 4.0)
        # Another program has left room for the first pick, and for nothing else.
        room = int(town_.tables[town_.problem.region_index[0]].selection_units[0])

        class Spent(MemoryStore):
            def remaining(self):
                return units_of(100.0)

        stores: list[Any] = [Spent(room)] + [MemoryStore(units_of(100.0)) for _ in range(town_.problem.agents - 1)]
        machines = machines_of(town_, seed, stores)
        play(town_, machines)
        agent = machines[0].agent
        assert agent.spent == sum(stores[0].charges) == room
        interrupted += agent.exhausted
    assert interrupted


def busy(table, slot, **changes):
    """What makes agents pay most: everything was attempted by others as well, and no agent holds anything."""
    count = len(table.resources)
    previous = f"b{slot - 1}" if slot > 1 else ""
    bulletin = Bulletin("g", table.region, slot, previous, (None,) * count, attempted=(True,) * count)
    return replace(bulletin, **changes), f"b{slot}"


def spent_by_two(stores, late, slots=60):
    """The refusals of two programs and what both were charged, by a board that lies to each of them.

    The second one draws before the first one has stored anything (`late` = 0), or begins after so many slots.
    """
    town_ = Town(town(6), 2.0)
    table, refusals = town_.tables[0], []
    first, second = (machines_of(town_, seed, [store] * 12)[0] for seed, store in enumerate(stores))

    def go(machine, work, *args):
        try:
            work(*args)
        except Refused as refusal:
            refusals.append(refusal.code)
            assert machine.left

    if late:
        go(first, first_claims, town_, first)
        for slot in range(1, late):
            go(first, first.receive, *busy(table, slot))
    else:
        inner, pending = second._draw, [first]

        def draw_after_the_other(step, purpose):
            for machine in pending[:]:
                pending.remove(machine)
                go(machine, first_claims, town_, machine)
            return inner(step, purpose)

        second._draw = draw_after_the_other
    go(second, first_claims, town_, second)
    for slot in range(max(late, 1), slots):
        for machine in (second, first):
            go(machine, machine.receive, *busy(table, slot))
    return refusals, stores[0].spent()


@pytest.mark.parametrize("late", [0, 1, 3])
def test_two_programs_of_one_owner_spend_no_more_than_epsilon_in_a_game(tmp_path, late):
    """And a planted bug is found: a ledger that does not look whether another program has been faster."""
    facts: dict[str, Any] = {"agent": "alice", "lifetime": units_of(10.0)}
    with Ledger(tmp_path / "a", **facts) as one, Ledger(tmp_path / "a", **facts) as other:
        refusals, spent = spent_by_two([one, other], late)
    assert refusals == ["kept"]
    assert 0 < spent <= units_of(2.0)
    with Ledger(tmp_path / "b", **facts) as one, Ledger(tmp_path / "b", **facts) as other:
        refusals, spent = spent_by_two([Careless(one), Careless(other)], late)
    assert refusals == []
    assert spent > units_of(2.0)


PROGRAM = """
import pickle, sys
from palmatch.device.ledger import Ledger, units_of
from palmatch.device.rounds import RoundsMachine, budget_units, region_tables, rules_of
from palmatch.errors import Refused

with open(sys.argv[1], "rb") as file:
    owner, records = pickle.load(file)
with Ledger(sys.argv[2], agent="alice", lifetime=units_of(10.0)) as ledger:
    machine = RoundsMachine(owner, ledger)
    for record, digest in records:
        sys.stdin.readline()
        try:
            machine.receive(record, digest)
            print("fine", flush=True)
        except Refused as refusal:
            print(refusal.code, flush=True)
"""


def test_of_two_processes_of_one_owner_one_plays_and_the_other_leaves(tmp_path):
    town_ = Town(town(6), 2.0)
    table = town_.tables[0]
    owner = machines_of(town_, 0, [MemoryStore(0)] * 12)[0].owner
    records = [*start_of(town_), *(busy(table, slot) for slot in range(1, 30))]
    (tmp_path / "records").write_bytes(pickle.dumps((owner, records)))
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "records"), str(tmp_path / "ledger")]
    with ExitStack() as stack:
        programs = [
            stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            for _ in range(2)
        ]
        told = []
        for _ in records:
            for program in programs:
                program.stdin.write("\n")
                program.stdin.flush()
            told += [program.stdout.readline().strip() for program in programs if program.stdout is not None]
    assert sorted(set(told)) == ["fine", "kept"]
    assert told.count("kept") == 1
    with Ledger(tmp_path / "ledger", agent="alice", lifetime=units_of(10.0)) as ledger:
        assert 0 < ledger.spent() <= units_of(2.0)


def test_a_game_that_is_opened_again_after_another_one_goes_on_where_it_was():
    """However a board orders its games, one of them costs at most ε."""
    town_ = Town(town(6), 2.0)
    store, slot = MemoryStore(units_of(100.0)), 0
    for turn in range(8):
        for game in ("g", "h"):
            machine = machines_of(town_, turn, [store] * 12)[0]
            for record, digest in start_of(town_):
                machine.receive(replace(record, game=game), digest)
            for number in range(slot + 1, slot + 6):
                machine.receive(*busy(town_.tables[0], number, game=game))
        slot += 5
    assert store.spent == 2 * machine.agent.spent <= 2 * units_of(2.0)
    assert machine.agent.exhausted


def test_a_slot_that_could_not_be_stored_is_not_built_upon():
    town_ = Town(town(6), 2.0)

    class Full(MemoryStore):
        full = False

        def charge(self, units, **facts):
            if self.full:
                raise OSError("no space left on device")
            super().charge(units, **facts)

    store = Full(units_of(100.0))
    machine = machines_of(town_, 0, [store] * 12)[0]
    first_claims(town_, machine)
    store.full = True
    with pytest.raises(OSError, match="no space"):
        machine.receive(*busy(town_.tables[0], 1))
    store.full = False
    assert machine.receive(*busy(town_.tables[0], 2)) == ()
    assert len(store.charges) == 1
    again = machines_of(town_, 1, [store] * 12)[0]
    first_claims(town_, again)
    again.receive(*busy(town_.tables[0], 1))
    assert store.spent == again.agent.spent


class Forgetful(Agent):
    """A planted bug: an agent that could not pay asks again at the next action, which may be cheaper."""

    def _may_act_on_the_truth(self, units):
        self.exhausted = False
        return super()._may_act_on_the_truth(units)


def acts_on_the_truth_again(kind):
    """Whether an agent that could not pay for a selection pays for a later action that costs less."""
    table = Town(town(3), 1.0).tables[0]
    dear, cheap = [10] * (len(table.offsets) - 1), [1] * len(table.entries)
    tables = replace(rounds.region_tables(table), first_units=10, selection_units=dear, backoff_units=cheap)
    agent = kind(tables, table.utilities[0], 5, rules=rounds.rules_of(table), draw=lambda _step, _purpose: 0)
    assert agent.spent == 0
    agent.collided(1)
    return agent.spent > 0


def test_an_agent_that_could_not_pay_once_never_pays_again():
    assert not acts_on_the_truth_again(Agent)
    assert acts_on_the_truth_again(Forgetful)


class Skipping(Agent):
    """A planted bug: an agent that still pays passes over what is held, with chances that its price is not for."""

    def _select(self, step, units, held=()):
        super()._select(step, units, held)
        return self._next_unheld(self.draw(step, 1), held)


def looks(kind, budget, held):
    """What an agent that plays the region's noise looks at, for draws from the whole grid."""
    table = Town(town(3), 1.0).tables[0]
    rules, seen = rounds.rules_of(table)._replace(truth_selection=0), []
    assert rules.spent_backoff > 0
    for value in range(0, GRID, GRID // 64):
        agent = kind(rounds.region_tables(table), table.utilities[0], budget, rules=rules, draw=lambda *_, v=value: v)
        agent.attempting = False
        seen.append(agent.decide(1, held).resource)
    return seen


def test_an_agent_that_still_pays_passes_over_nothing():
    rich = 2**60
    some = {looks(Agent, rich, set())[0]}
    assert looks(Agent, rich, some) == looks(Agent, rich, set())
    assert looks(Agent, 0, some) != looks(Agent, 0, set())
    assert looks(Skipping, rich, some) != looks(Skipping, rich, set())


def refused(table):
    try:
        check_rounds_table(table, epsilon=table.epsilon, spots=len(table.utilities))
    except Refused as refusal:
        return refusal.code
    return None


@pytest.mark.parametrize("seed", range(8))
def test_prices_of_the_pure_account_are_accepted_and_cheaper_ones_refused(seed):
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


def test_prices_of_a_real_square_are_accepted():
    morning = pm.data.city.batch(8.0, seed=1)
    problem = pm.mobility.problem(morning.requests[:20], morning.vehicles[:25], edge=1000.0, spacing=250.0)
    for table in Town(problem, 1.0).tables[:3]:
        assert refused(table) is None


TABLE = Town(town(5), 1.0).tables[0]
DEAR = (60 << 32,) * len(TABLE.backoff)


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("epsilon", {"epsilon": 2.0}),
        ("shape", {"offsets": (0, 0)}),
        ("shape", {"selection_units": ()}),
        ("range", {"truth_selection": -1}),
        ("range", {"spent_backoff": 2**54}),
        ("value", {"gamma": float("nan")}),
        ("shape", {"resources": ("r1", *TABLE.resources[1:])}),
        # Whatever a back-off with such a chance would cost: it tells, or excludes, everything.
        *(("range", {"backoff": (chance, *TABLE.backoff[1:]), "backoff_units": DEAR}) for chance in (0, GRID)),
        # A draw would fall on no entry, or on one of the next rank set.
        *(("sum", {"selection": (TABLE.selection[0] + more, *TABLE.selection[1:])}) for more in (-1, 1)),
        *(("sum", {"selection": (*TABLE.selection[:-1], TABLE.selection[-1] + more)}) for more in (-1, 1)),
    ],
)
def test_a_malformed_table_of_rounds_is_refused(code, changes):
    table = TABLE
    with pytest.raises(Refused) as refusal:
        check_rounds_table(replace(table, **changes), epsilon=1.0, spots=len(table.utilities))
    assert refusal.value.code == code


def test_a_board_that_says_the_device_holds_what_it_did_not_claim_is_refused():
    town_ = Town(town(6), 1.0)
    machine = machines_of(town_, 0, [MemoryStore(units_of(9.0))] * town_.problem.agents)[0]
    claimed = [message.resource for message in first_claims(town_, machine) if isinstance(message, Claim)]
    table = town_.tables[0]
    holders = tuple(None if r in claimed else "tag 0" for r in table.resources)
    bulletin = Bulletin("g", table.region, 1, "", holders, attempted=(True,) * len(holders))
    with pytest.raises(Refused, match="did not claim"):
        machine.receive(bulletin, "b1")


@pytest.mark.parametrize(
    ("code", "slot", "changes", "digest"),
    [
        ("chain", 2, {"previous": "another"}, "b2"),
        ("announcement", 1, {"attempted": (False,) * 7}, "b1 too"),
        ("sequence", 1001, {}, "b1001"),
        ("shape", 2, {"holders": (None,) * 6}, "b2"),
        ("shape", 2, {"region": "there"}, "b2"),
    ],
)
def test_a_bulletin_of_rounds_that_does_not_follow_is_refused_and_nothing_is_charged(code, slot, changes, digest):
    town_, store = Town(town(6), 1.0), MemoryStore(units_of(9.0))
    machine = machines_of(town_, 0, [store] * 12)[0]
    first_claims(town_, machine)
    machine.receive(*busy(town_.tables[0], 1))
    charges = list(store.charges)
    with pytest.raises(Refused) as refusal:
        machine.receive(busy(town_.tables[0], slot, **changes)[0], digest)
    assert refusal.value.code == code
    assert store.charges == charges


def test_after_a_restart_another_table_of_the_game_is_refused():
    town_, store = Town(town(6), 1.0), MemoryStore(units_of(9.0))
    first_claims(town_, machines_of(town_, 0, [store] * 12)[0])
    charges = list(store.charges)
    with pytest.raises(Refused, match="second table"):
        first_claims(town_, machines_of(town_, 1, [store] * 12)[0], "another table")
    assert store.charges == charges


def test_when_a_claim_leaves_does_not_depend_on_what_was_decided():
    town_, kinds = Town(town(6), 2.0), Counter[str]()
    for seed in range(12):
        machine = machines_of(town_, seed, [MemoryStore(units_of(9.0))] * 12)[0]
        kinds.update(sent_at(machine, [*start_of(town_), *(busy(town_.tables[0], slot) for slot in range(1, 60))]))
        machine = machines_of(town_, seed, [MemoryStore(units_of(9.0))] * 12)[0]
        (claim,) = first_claims(town_, machine)
        won = tuple("tag 0" if name == claim.resource else None for name in town_.tables[0].resources)
        again = machines_of(town_, seed, [MemoryStore(units_of(9.0))] * 12)[0]
        kinds.update(sent_at(again, [*start_of(town_), busy(town_.tables[0], 1, holders=won)]))
    assert kinds.keys() == {"Join", "Claim", "Handover"}


def test_a_device_that_won_hands_over_also_after_a_restart():
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


def test_a_budget_is_worth_to_the_device_what_it_is_worth_to_the_batch():
    for epsilon in (0.0, 1e-9, 0.3, 1.0, 7.7):
        assert budget_units(epsilon) == int(rounded_down(np.array([epsilon]))[0])
