"""Matchings of one service that follow one another: one report a request, stored before it is used, within budgets."""

import asyncio
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palmatch as pm
from palmatch import session as module
from palmatch.device.ledger import (
    MAX_UNITS,
    UNIT_BITS,
    Charge,
    Ledger,
    LedgerError,
    Limits,
    Now,
    Store,
    raise_limit,
    reopen,
)
from palmatch.errors import InputError, Refused
from palmatch.session import Request, Session

UNIT = 1 << UNIT_BITS
HERE = Path(__file__)
IDS = [f"a{n}" for n in range(6)]

# Five agents in one square of 1000 m and one in another; chargers around them.
PLACES = np.array(
    [
        (40.756, -73.987),
        (40.752, -73.980),
        (40.7565, -73.9815),
        (40.754, -73.9865),
        (40.7555, -73.983),
        (40.745, -73.99),
    ]
)
CHARGERS = pl.DataFrame(
    {
        "id": [f"c{n}" for n in range(5)],
        "lat": [40.7650, 40.7450, 40.7560, 40.7530, 40.7500],
        "lon": [-73.9700, -73.9900, -73.9950, -73.9740, -73.9850],
    }
)


class Clock:
    """A device that has been running for some seconds; the time of day can be set."""

    def __init__(self):
        self.time, self.boot, self.uptime = 1_000_000, "first", 1000

    def __call__(self):
        return Now(self.time, self.boot, self.uptime)

    def wait(self, seconds):
        self.time, self.uptime = self.time + seconds, self.uptime + seconds


def opened(folder, **options):
    chosen: dict[str, Any] = {"edge": 1000.0, "spacing": 250.0, "epsilon": 2.0, "budget": pm.Budget(6), "seed": 3}
    return Session(**{"store": folder / "budgets.ledger", "clock": Clock(), **chosen, **options})


def ended(folder, ids):
    with opened(folder) as session:
        return session.end(ids)


def agents(places=PLACES, ids=None):
    return pl.DataFrame({"id": ids or IDS[: len(places)], "lat": places[:, 0], "lon": places[:, 1]})


def elsewhere(places=PLACES):
    """Other places of the same squares: the corner that is opposite in the square."""
    low, high = module.mobility.bounds_of(module.mobility.squares_of(places[:, 0], places[:, 1], 1000.0), 1000.0)
    return low + (high - low) * 0.999 - (places - low) * 0.99


def matched(folder, *given, **options):
    with opened(folder) as session:
        return session.match(*given, **options)


def public(matching):
    return [matching.pairs, matching.utility.tolist(), matching.epsilon.tolist(), matching.charged.tolist(),
            matching.rounds, matching.guarantee, matching.welfare]  # fmt: skip


def stored(folder):
    with reopen(folder / "budgets.ledger") as ledger:
        known = {agent: ledger.kept(f"request of {agent}") for agent in IDS}
    return {agent: Request.unpacked(text) for agent, text in known.items()}


def forced(monkeypatch, shift=0):
    """Let every agent report what its row says, whatever its cell is."""

    def reports(plan, draw):
        most = [plan.channels[number].reports for number in plan.channel_of.tolist()]
        return np.array([(row + shift) % count for row, count in enumerate(most)])

    monkeypatch.setattr(module, "sample_reports", reports)


@pytest.mark.parametrize("method", [name for name, method in pm.METHODS.items() if method.matcher])
def test_populations_with_the_same_stored_reports_look_the_same_over_a_sequence(tmp_path, monkeypatch, method):
    forced(monkeypatch)
    seen = []
    for name, places in (("one", PLACES), ("two", elsewhere())):
        (tmp_path / name).mkdir()
        with opened(tmp_path / name, method=method) as session:
            first = session.match(agents(places[:4]), CHARGERS)
            ended = session.end(["a0"])
            second = session.match(agents(places), CHARGERS[:3])
            third = session.match(agents(places), CHARGERS)
        content = (tmp_path / name / "budgets.ledger").read_bytes()
        seen.append(([public(one) for one in (first, second, third)], ended, content))
    assert seen[0] == seen[1]
    assert seen[0][0][0][3] == [1] * 4


def test_the_place_decides_what_is_reported(tmp_path):
    """Without forced reports the same two populations differ, over some seeds: the test above compares something."""
    found = set()
    for seed in range(4):
        for places in (PLACES, elsewhere()):
            folder = tmp_path / f"{seed} {places[0, 0]}"
            folder.mkdir()
            with opened(folder, seed=seed, epsilon=6.0) as session:
                session.match(agents(places), CHARGERS)
            found.add((seed, tuple(stored(folder).items())))
    assert len(found) > 4


def test_an_agent_without_a_budget_is_matched_by_its_region_alone(tmp_path):
    seen = []
    for name, places in (("one", PLACES), ("two", elsewhere())):
        (tmp_path / name).mkdir()
        with opened(tmp_path / name, budget=pm.Budget(0)) as session:
            seen.append(public(session.match(agents(places), CHARGERS)))
    assert seen[0] == seen[1]
    assert seen[0][2] == [0.0] * 6


def test_later_places_of_a_waiting_agent_are_not_read(tmp_path):
    seen = []
    for name, later in (("one", PLACES), ("two", PLACES + 0.02)):
        (tmp_path / name).mkdir()
        with opened(tmp_path / name) as session:
            session.match(agents(), CHARGERS)
            seen.append((public(session.match(agents(later), CHARGERS)), stored(tmp_path / name)))
    assert seen[0] == seen[1]


def test_a_report_is_drawn_once_whatever_changes(tmp_path, monkeypatch):
    with opened(tmp_path) as session:
        first = session.match(agents(), CHARGERS)
    before = stored(tmp_path)
    assert all(request is not None for request in before.values())
    forced(monkeypatch, shift=1)
    with opened(tmp_path, epsilon=1.0, likely=[(40.7, -74.0)], alpha=900.0, method="hungarian-once") as session:
        later = [session.match(agents(), cars) for cars in (CHARGERS[:2], CHARGERS[3:])]
    assert first.charged.sum() >= 5
    reported = {agent: request for agent, request in before.items() if request and request.chances}
    assert {agent: stored(tmp_path)[agent] for agent in reported} == reported
    for matching in later:
        assert matching.epsilon[[IDS.index(agent) for agent in reported]].sum() == 0.0


def test_a_new_place_is_a_new_request_and_is_charged(tmp_path):
    with opened(tmp_path) as session:
        one = session.match(agents(), CHARGERS)
        assert session.end([*IDS, "stranger", "a0"]) == 6
        assert set(stored(tmp_path).values()) == {None}
        two = session.match(agents(elsewhere()), CHARGERS)
        assert (one.epsilon[:5] == 2.0).all()
        assert (two.epsilon[:5] == 2.0).all()
        assert session.remaining("a0") == 2.0


def test_what_is_stored_keeps_epsilon_and_has_no_place(tmp_path):
    with opened(tmp_path, seed=None) as session:
        session.match(agents(), CHARGERS)
    for request in stored(tmp_path).values():
        if request.chances:
            chances = np.frombuffer(module.zlib.decompress(request.chances), dtype="<i8")
            assert chances.max() <= np.exp(2.0) * chances.min()
        assert not np.isclose(PLACES, request.at, atol=1e-4).all(axis=1).any()
    text = (tmp_path / "budgets.ledger").read_text()
    assert not any(f"{value:.4f}"[:7] in text for value in PLACES[:, 0])


def test_an_agent_that_had_nothing_to_tell_may_report_later_from_where_it_was(tmp_path):
    """Alone with one charger, a report says nothing and costs nothing; its place is not written meanwhile."""
    with opened(tmp_path) as session:
        alone = session.match(agents(PLACES[:1]), CHARGERS[:1])
        assert alone.charged.tolist() == [0]
        assert stored(tmp_path)["a0"].chances == b""
        later = session.match(agents(), CHARGERS)
        assert later.charged[0] == 1
    with opened(tmp_path / "two" if (tmp_path / "two").mkdir() is None else tmp_path) as session:
        session.match(agents(PLACES[:1]), CHARGERS[:1])
    # Another process does not know where it was, and does not read it again.
    with opened(tmp_path / "two") as session:
        assert session.match(agents(), CHARGERS).charged[0] == 0


def test_a_place_of_a_request_that_another_process_has_ended_is_not_used_for_the_next_one(tmp_path):
    north = PLACES[:1] + np.array([0.02, 0.0])
    with opened(tmp_path) as session:
        session.match(agents(PLACES[:1]), CHARGERS[:1])
        with opened(tmp_path) as other:
            assert other.end(["a0"]) == 1
            other.match(agents(north), CHARGERS[:1])
        begun = stored(tmp_path)["a0"]
        assert session.match(agents(), CHARGERS).charged[0] == 0
        assert stored(tmp_path)["a0"] == begun


# --- durable before it is used ---

_CHILD = """
import sys, time
sys.path.insert(0, sys.argv[2])
from pathlib import Path
import palmatch.session as module
from test_session import CHARGERS, agents, opened
def waiting(*given, **facts):
    print("now", flush=True)
    time.sleep(600)
module.make_matching = waiting
opened(Path(sys.argv[1]), seed=None).match(agents(), CHARGERS)
"""


def test_after_a_kill_between_storing_and_matching_the_stored_report_is_used(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", _CHILD, str(tmp_path), str(HERE.parent)], stdout=subprocess.PIPE)
    try:
        assert child.stdout.readline() == b"now\n"
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    before = stored(tmp_path)
    assert all(request and request.chances for agent, request in before.items() if agent != "a5")
    with opened(tmp_path) as session:
        again = session.match(agents(), CHARGERS)
    assert again.epsilon[:5].sum() == 0.0
    assert again.matched >= 4
    assert {name: stored(tmp_path)[name] for name in IDS[:5]} == {name: before[name] for name in IDS[:5]}


def test_a_report_is_on_the_disk_before_it_is_used(tmp_path, monkeypatch):
    kept: list[dict[str, Request | None]] = []
    honest = Session._outcome

    def watched(self, workspace, plan, requests, chance):
        kept.append(stored(tmp_path))
        assert list(kept[-1].values()) == list(requests)
        return honest(self, workspace, plan, requests, chance)

    monkeypatch.setattr(Session, "_outcome", watched)
    with opened(tmp_path) as session:
        session.match(agents(), CHARGERS)
    assert len(kept) == 1


def test_a_disk_that_fails_ends_in_an_error_and_no_report_is_used(tmp_path, monkeypatch):
    from palmatch.device import ledger

    with opened(tmp_path) as session:
        monkeypatch.setattr(ledger, "_sync", lambda number: (_ for _ in ()).throw(OSError("no disk")))
        monkeypatch.setattr(Session, "_outcome", lambda *given: pytest.fail("a report was used"))
        with pytest.raises(LedgerError, match="no disk"):
            session.match(agents(), CHARGERS)


def test_lines_that_a_crash_has_cut_off_are_charged_and_kept_together_or_not_at_all(tmp_path):
    path, limits = tmp_path / "budgets.ledger", Limits(10 * UNIT)
    with Store(path, limits=limits, clock=Clock()) as store:
        begin = path.stat().st_size
        store.charge_all([Charge(name, UNIT, {f"request of {name}": "x"}, {}) for name in IDS[:3]], purpose="request")
    content = path.read_bytes()
    for cut in range(begin, len(content) + 1):
        path.write_bytes(content[:cut])
        with Store(path, limits=limits, clock=Clock()) as store:
            charged = [left < 10 * UNIT for left in store.remaining_of(IDS[:3])]
            assert charged == [value is not None for value in store.kept_of([f"request of {n}" for n in IDS[:3]])]
            assert charged == sorted(charged, reverse=True)
    assert charged == [True] * 3


def test_what_another_process_has_stored_meanwhile_is_used(tmp_path, monkeypatch):
    honest, other = Session._write, []

    def late(self, *given):
        if not other:
            other.append(None)
            with opened(tmp_path, seed=8) as second:
                other.append(second.match(agents(), CHARGERS))
        return honest(self, *given)

    monkeypatch.setattr(Session, "_write", late)
    with opened(tmp_path) as session:
        matching = session.match(agents(elsewhere()), CHARGERS)
    assert other[1].epsilon.sum() >= 10.0
    assert matching.epsilon[:5].sum() == 0.0
    with reopen(tmp_path / "budgets.ledger") as ledger:
        charges = [entry.agent for entry in ledger.entries() if entry.kind == "charged"]
    assert len(charges) == len(set(charges))


def test_a_request_that_another_process_writes_meanwhile_ends_all_the_same(tmp_path, monkeypatch):
    honest, asked = Store.kept_of, []

    def late(self, names):
        known = honest(self, names)
        asked.append(names)
        if len(asked) == 1:
            with opened(tmp_path) as other:
                other.match(agents(), CHARGERS)
        return known

    with opened(tmp_path) as session, opened(tmp_path) as first:
        first.match(agents(PLACES[:1]), CHARGERS[:1])
        first.match(agents(PLACES[:0]), CHARGERS)
        monkeypatch.setattr(Store, "kept_of", late)
        session.end(["a0"])
        # The report of the first process is over too.
        assert first.match(agents(), CHARGERS[:0]).matched == 0
    assert stored(tmp_path)["a0"] is None


_RIVAL = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
import palmatch as pm
from palmatch.device.ledger import device_clock
from test_session import CHARGERS, IDS, agents, opened
with opened(Path(sys.argv[1]), seed=None, epsilon=1.0, budget=pm.Budget(4), clock=device_clock) as session:
    sys.stdin.readline()
    for _ in range(6):
        session.match(agents(), CHARGERS)
        session.end(IDS)
"""


def test_two_processes_keep_one_budget(tmp_path):
    words = [sys.executable, "-c", _RIVAL, str(tmp_path), str(HERE.parent)]
    children = [subprocess.Popen(words, stdin=subprocess.PIPE, text=True) for _ in range(2)]
    for child in children:
        child.communicate("\n")
        assert child.returncode == 0
    spent = dict.fromkeys(IDS, 0)
    open_requests = dict.fromkeys(IDS, False)
    with reopen(tmp_path / "budgets.ledger") as ledger:
        for entry in ledger.entries():
            if entry.kind == "charged":
                spent[entry.agent] += entry.units
                # A request is charged once: it is open after its charge, and another one begins after it has ended.
                assert not open_requests[entry.agent]
                open_requests[entry.agent] = True
            elif "" in entry.kept.values():
                open_requests[entry.agent] = False
    assert max(spent.values()) == 4 * UNIT


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 90), st.integers(1, 3), st.integers(-500, 500)), max_size=30))
def test_in_any_window_no_more_than_the_budget_is_charged(tmp_path_factory, steps):
    clock, charges = Clock(), []
    path = tmp_path_factory.mktemp("windows") / "budgets.ledger"
    with Store(path, limits=Limits(30, 5, 100), clock=clock) as store:
        for wait, units, jump in steps:
            clock.wait(wait)
            clock.time = max(0, clock.time + jump)
            for owner in ("x", "y"):
                (left,) = store.remaining_of([owner])
                (done,) = store.charge_all([Charge(owner, units, {}, {})], purpose="request")
                assert done == (units <= left)
                charges += [(clock.uptime, owner, units)] * done
    for owner in ("x", "y"):
        own = [(at, units) for at, name, units in charges if name == owner]
        assert sum(units for _, units in own) <= 30
        for begin, _ in own:
            assert sum(units for at, units in own if begin <= at <= begin + 100) <= 5


def test_a_clock_that_is_set_gives_nothing_back_and_the_period_does(tmp_path):
    clock = Clock()
    with opened(tmp_path, budget=pm.Budget(2, per="1h"), clock=clock) as session:
        session.match(agents(), CHARGERS)
        session.end(IDS)
        for jump in (10**6, -(10**6)):
            clock.time += jump
            assert session.remaining("a0") == 0.0
        clock.wait(3600)
        assert session.remaining("a0") == 0.0
        clock.wait(1)
        assert session.remaining("a0") == 2.0
        session.match(agents(), CHARGERS)
    # After a restart no more has passed for sure than the device has been running since.
    clock.boot, clock.uptime, clock.time = "second", 60, clock.time + 10**6
    with opened(tmp_path, budget=pm.Budget(2, per="1h"), clock=clock) as session:
        assert session.remaining("a0") == 0.0
        clock.wait(3600)
        assert session.remaining("a0") == 2.0


def test_a_lifetime_ends(tmp_path):
    clock, budget = Clock(), pm.Budget(2, per="1min", lifetime=5)
    with opened(tmp_path, budget=budget, clock=clock) as session:
        spent = []
        for _ in range(4):
            spent.append(session.match(agents(), CHARGERS).epsilon[0])
            session.end(IDS)
            clock.wait(61)
        assert spent == [2.0, 2.0, 0.0, 0.0]
        assert session.remaining("a0") == 1.0
        assert "ε = 5 for all its requests ever" in opened_guarantee(session)


def test_limits_that_are_raised_while_a_session_is_open_are_not_its_own(tmp_path):
    with opened(tmp_path, budget=pm.Budget(2)) as session:
        session.match(agents(), CHARGERS)
        session.end(IDS)
        raise_limit(
            tmp_path / "budgets.ledger", lifetime=MAX_UNITS, per_period=9 * UNIT, period_seconds=604800, reason="test"
        )
        assert session.remaining("a0") == 0.0
        assert session.match(agents(), CHARGERS).epsilon.sum() == 0.0
        assert any("larger limits" in line for line in session.guarantee.not_covered)


def opened_guarantee(session):
    return module._sequence(session.budget).statement


@pytest.mark.parametrize("when_spent", ["region", "refuse"])
def test_an_agent_whose_budget_is_spent_is_matched_by_its_region_or_refused(tmp_path, when_spent):
    with opened(tmp_path, budget=pm.Budget(2), when_spent=when_spent) as session:
        session.match(agents(PLACES[:2]), CHARGERS)
        session.end(IDS)
        later = session.match(agents(), CHARGERS)
    assert later.epsilon[:2].sum() == 0.0
    assert (later.epsilon[2:5] == 2.0).all()
    assert later.agent_ids == tuple(IDS)
    if when_spent == "refuse":
        assert (later.resource_of[:2] == -1).all()
        assert stored(tmp_path)["a0"] is None
    assert later.matched == (5 if when_spent == "region" else 4)


def test_an_agent_may_bring_an_epsilon_and_pays_no_more_than_the_budget(tmp_path):
    with opened(tmp_path) as session:
        own = agents().with_columns(epsilon=pl.Series([0.5, 9.0, None, 0.0, 1.0, 1.0]))
        assert session.guarantee.epsilon == 2.0
        matching = session.match(own, CHARGERS)
        assert matching.epsilon.tolist()[:5] == [0.5, 6.0, 2.0, 0.0, 1.0]
        assert matching.guarantee.epsilon == 6.0
    # What was brought stays true of the store, whatever the next process offers.
    with opened(tmp_path, epsilon=0.0) as session:
        assert session.guarantee.epsilon == 6.0


def test_the_guarantee_names_its_period_and_what_is_public(tmp_path):
    with opened(tmp_path, public_resources=True, seed=None) as session:
        told = session.match(agents(), CHARGERS).guarantee
    assert (told.epsilon, told.delta, told.notion) == (6, 0.0, "PLDP")
    assert "ε = 6 for all its requests that report within any 7d" in told.statement
    assert "ids" in told.assumptions[0]
    assert "whether a budget is spent" in told.assumptions[0]
    with opened(tmp_path, seed=None) as session:
        each = session.guarantee
    assert each.epsilon == 2.0
    assert "a guarantee of each request by itself" in each.statement
    with opened(tmp_path) as session:
        assert "This is a simulation" in session.guarantee.assumptions[0]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda folder: opened(folder, method="palma"), "stores one report a request, and palma has none"),
        (lambda folder: opened(folder, epsilon=-1), "epsilon from 0"),
        (lambda folder: opened(folder, when_spent="drop"), "'region' or 'refuse'"),
        (lambda folder: opened(folder, edge=-1.0), "edge above 0 metres"),
        (lambda folder: opened(folder, origin=(91.0, 0.0)), "an origin of"),
        (lambda folder: matched(folder, PLACES[:2], CHARGERS, ids=["x", "x"]), "occurs twice"),
        (lambda folder: pm.Budget(-1), "a budget of epsilon from 0"),
        (lambda folder: opened(folder, budget=7), "a budget such as palmatch.Budget"),
        (lambda folder: ended(folder, "a0"), "a list of ids, got one text"),
        (lambda folder: pm.Budget(1, per="a week"), 'a period such as "30min"'),
        (lambda folder: pm.Budget(1, per="0d"), "at least 1s"),
        (lambda folder: matched(folder, PLACES, CHARGERS), "a column id, or ids="),
        (lambda folder: matched(folder, PLACES, CHARGERS, ids=["x"]), "an id for each of 6 agents"),
        (lambda folder: matched(folder, agents(), CHARGERS, conflicts=[("a0", "c0")]), "conflicts_are_public"),
        (lambda folder: matched(folder, agents().with_columns(edge=500.0), CHARGERS), "no column edge"),
    ],
)
def test_what_a_session_cannot_do_is_refused_in_a_sentence(tmp_path, call, words):
    with pytest.raises(InputError, match=words):
        call(tmp_path)
    # A store that was made by mistake would keep its squares for good.
    assert words not in ("edge above 0 metres", "an origin of") or not list(tmp_path.iterdir())


def test_a_store_keeps_its_squares_its_limits_and_its_kind(tmp_path):
    opened(tmp_path).close()
    # A metre is enough: where squares overlap that were moved is more than either of them tells.
    for moved in ({"edge": 900.0}, {"origin": (41.0, -74.00001)}, {"spacing": 250.0001}):
        with pytest.raises(Refused, match="another partition"):
            opened(tmp_path, **moved)
    with pytest.raises(InputError, match="no more than the ledger allows"):
        opened(tmp_path, budget=pm.Budget(7))
    opened(tmp_path, budget=pm.Budget(3)).close()
    with pytest.raises(InputError, match="give every agent a file of its own"):
        Ledger(tmp_path / "budgets.ledger", agent="a0", lifetime=UNIT)
    Ledger(tmp_path / "mine.ledger", agent="a0", lifetime=UNIT).close()
    with pytest.raises(InputError, match="found the ledger of agent 'a0'"):
        opened(tmp_path, store=tmp_path / "mine.ledger")


def test_public_conflicts_and_capacities_hold(tmp_path):
    with opened(tmp_path) as session:
        chargers = CHARGERS[:2].with_columns(capacity=pl.Series([2, 3]))
        pairs = [(agent, "c0") for agent in IDS[:4]]
        matching = session.match(agents(), chargers, conflicts=pairs, conflicts_are_public=True)
    assert matching.matched == 5
    assert not set(pairs) & set(matching.pairs)


def test_arrays_with_ids_and_asynchronous_calls_give_the_same(tmp_path):
    found = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        with opened(tmp_path / name) as session:
            if name == "one":
                found.append(session.match(agents(), CHARGERS))
            else:
                found.append(asyncio.run(session.match_async(PLACES, CHARGERS, ids=IDS)))
    assert public(found[0]) == public(found[1])


def test_no_agents_and_no_resources_give_an_empty_matching(tmp_path):
    with opened(tmp_path) as session:
        nothing = session.match(agents(), CHARGERS[:0])
        assert (nothing.matched, nothing.epsilon.sum()) == (0, 0.0)
        none = session.match(agents()[:0], CHARGERS)
        assert (none.matched, len(none.epsilon)) == (0, 0)


def test_a_matcher_is_given_nothing_but_what_is_stored_and_public(tmp_path, monkeypatch):
    seen: list[Any] = []
    once = pm.METHODS["once"]

    def spy(workspace, plan, reported, chance, trace):
        seen.append((workspace.problem, plan, chance))
        assert once.matcher is not None
        return once.matcher(workspace, plan, reported, chance, trace)

    monkeypatch.setitem(pm.METHODS._methods, "once", replace(once, matcher=spy))
    with opened(tmp_path, seed=None) as session:
        session.match(agents(), CHARGERS)
    ((problem, plan, chance),) = seen
    middles = [problem.domain.representative(region) for region in problem.regions]
    for row, region in enumerate(problem.region_index.tolist()):
        types = problem.domain.types_of(problem.regions[region])
        np.testing.assert_array_equal(problem.types[row], types[middles[region]])
        np.testing.assert_array_equal(problem.truth[row], types[middles[region]])
    assert not plan.cell.any()
    np.testing.assert_array_equal(chance.private, chance.public)
    np.testing.assert_array_equal(chance.second, chance.public)


def test_no_more_is_played_with_than_is_charged():
    limits = pm.Budget(0.1, lifetime=0.3).limits
    assert limits.per_period is not None
    assert limits.per_period <= 0.1 * UNIT < limits.per_period + 1
    assert limits.lifetime <= 0.3 * UNIT < limits.lifetime + 1


def test_a_session_that_is_closed_says_so(tmp_path):
    with opened(tmp_path) as session:
        pass
    for use in (lambda: session.match(agents(), CHARGERS), lambda: session.end(["a"]), session.reports):
        with pytest.raises(pm.InputError, match="This session is closed"):
            use()
