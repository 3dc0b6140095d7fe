"""The browser's device decides as Python's does: 0 differences in more than 100,000 random steps."""

import json
import shutil
import subprocess
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import pytest

import palmatch.device
from palmatch.device.bid import best_bid
from palmatch.device.checks import check_listed, check_table, power_below
from palmatch.device.distribution import GRID, draw_report
from palmatch.device.grid import Place, locate, spot_position
from palmatch.device.ledger import BudgetExhausted, Ledger, Now, units_of
from palmatch.device.messages import Partition
from palmatch.device.state import COPIES, ONCE, margin_of, sending_times

from .games import (
    ROOT,
    MemoryStore,
    chances_at_random,
    fields_of,
    finite,
    game_at_random,
    outcome,
    play,
    record_json,
    shown,
    spoiled,
    table_at_random,
    unlisted,
)
from .test_listed import NAMES, oversized
from .test_machines import OWNER, PLACE, until_table

NODE = shutil.which("node")
MODULE = Path(palmatch.device.__file__).with_name("device.mjs")
pytestmark = pytest.mark.skipif(NODE is None, reason="node is not installed")


def in_node(cases, folder, module=MODULE):
    """Let device.mjs do the cases."""
    assert NODE is not None
    (folder / "cases.json").write_text(json.dumps(cases, default=fields_of))
    twin = Path(__file__).with_name("twin.mjs")
    command = [NODE, str(twin), str(module), str(folder / "cases.json"), str(folder / "results.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "results.json").read_text())


def compare(cases, expected, folder):
    """Both languages agree in every case, doubles to the last bit."""
    found = in_node(cases, folder)
    assert len(found) == len(expected)
    different = [
        (case, a, b) for case, a, b in zip(cases, expected, found, strict=True) if json.loads(json.dumps(a)) != b
    ]
    assert not different, (len(different), different[0])


def partitions(random):
    return Partition(
        random.choice([1000.0, 2000.0, 730.0, 999.9, 250.0]),
        random.choice([100.0, 130.0, 33.3, 250.0]),
        (random.choice([41.0, 0.0, -60.5, 88.0]), random.choice([-74.0, 0.0, 179.0])),
    )


def test_positions_are_snapped_alike(tmp_path):
    random = Random(1)
    cases, expected = [], []
    for number in range(40_000):
        partition = partitions(random)
        latitude, longitude = random.uniform(-90, 90), random.uniform(-180, 180)
        if number % 2:  # on the grid's points and on its borders, where rounding decides
            column, row, spot = random.randint(-99, 99), random.randint(-99, 99), random.randrange(partition.spots)
            latitude, longitude = spot_position(partition, column, row, spot)
        cases.append(["locate", asdict(partition), latitude, longitude])
        expected.append(outcome(lambda p=partition, a=latitude, o=longitude: asdict(locate(p, a, o))))
        cases.append(["spots", asdict(partition)])
        expected.append(partition.spots)
    compare(cases, expected, tmp_path)


def test_tables_are_accepted_and_refused_alike(tmp_path):
    random = Random(2)
    cases, expected = [], []
    place = Place("0,-28", 0)
    for number in range(8_000):
        epsilon = random.choice([1e-9, 0.1, 1.0, 2.5, 8.0])
        table = table_at_random(random, "game", place, 9, epsilon)
        if number % 2:
            table = spoiled(random, table)
        cases.append(["check", record_json(table), epsilon, 9])
        expected.append(outcome(lambda t=table, e=epsilon: check_table(t, epsilon=e, spots=9)))
        wanted = random.choice([epsilon, random.uniform(0, 50), random.random() * 1e-9, 5e-324, -0.0])
        cases.append(["power", wanted])
        expected.append(str(power_below(wanted)[0]))
    told = Counter(next(iter(one.values())) for one in expected if isinstance(one, dict))
    assert {None, "sum", "ratio", "shape", "value", "price", "range", "epsilon"} <= told.keys(), told
    compare(cases, expected, tmp_path)


def test_proofs_that_resources_are_on_the_list_are_accepted_and_refused_alike(tmp_path):
    random = Random(5)
    cases, expected = [], []
    for number in range(4_000):
        table = table_at_random(random, "game", Place("0,-28", 0), 9, 1.0)
        if number % 4:
            table = unlisted(random, table)
        root = random.choice([ROOT, ROOT, ROOT, ROOT[::-1]])
        proof = None if table.listed is None else asdict(table.listed)
        cases.append(["listed", table.resources, proof, root])
        expected.append(outcome(lambda t=table, r=root: check_listed(t.resources, t.listed, r)))
    assert len({json.dumps(one) for one in expected}) == 2
    compare(cases, expected, tmp_path)


def test_a_browser_refuses_a_proof_that_is_too_large_before_it_hashes_any_of_it(tmp_path):
    """And a planted bug is found: a browser that does not look at sizes first."""
    good = shown(NAMES)
    assert good is not None
    # One hash is one too many, and a careless browser would compute millions.
    cases = [["hashes", names, asdict(proof), ROOT, 1] for names, proof in oversized(NAMES, good).values()]
    assert in_node(cases, tmp_path) == [[{"refused": "listed"}, 0]] * len(cases)
    [[accepted, count]] = in_node([["hashes", NAMES, asdict(good), ROOT]], tmp_path)
    assert accepted == {"value": None}
    assert count > len(NAMES)
    text, check = MODULE.read_text(), "!fits(resources, listed) ||"
    assert text.count(check) == 1
    careless = tmp_path / "careless.mjs"
    careless.write_text(text.replace(check, ""))
    told = in_node(cases, tmp_path, careless)
    assert all(count > 0 for _, count in told), told


def test_a_browser_draws_whole_numbers_of_every_size_from_the_whole_grid(tmp_path):
    drawn = in_node([["draw"]] * 4000, tmp_path)
    assert all(isinstance(one, int) and 0 <= one < GRID for one in drawn)
    # Every one of the 53 bits is set about as often as not: six standard deviations.
    often = [sum(one >> bit & 1 for one in drawn) for bit in range(53)]
    assert max(abs(count - 2000) for count in often) < 6 * 4000**0.5 / 2
    # And no two of them alike.
    assert len({tuple(one >> bit & 1 for one in drawn) for bit in range(53)}) == 53


def test_a_stored_report_is_for_its_own_place_alone(tmp_path):
    partition = asdict(Partition(1000.0, 100.0, (41.0, -74.0)))
    owner = {"request": "ride", "place": {"region": "0,-28", "spot": 7}, "partition": partition, "spots": 121}
    kept = [json.dumps([region, spot, "d", 3]) for region, spot in (("0,-28", 7), ("0,-28", 8), ("1,-28", 7))]
    found = in_node([["again", owner, one] for one in kept], tmp_path)
    assert found == [{"value": {"channel": "d", "report": 3}}, {"input": True}, {"input": True}]


def test_two_tabs_of_one_owner_draw_one_report_and_pay_for_it_once(tmp_path):
    """And a planted bug is found: a ledger that charges for a request however often it is asked to."""
    owner = asdict(OWNER) | {"place": asdict(PLACE)}
    records = [[record_json(record), digest] for record, digest in until_table()]
    case = ["together", {"owner": owner, "lifetime": units_of(5.0), "draws": [0, GRID - 1], "records": records}]
    # Whichever tab is first draws for both.
    [[told, left]] = in_node([case], tmp_path)
    assert (told in ([0, 0], [1, 1]), left) == (True, units_of(4.0))
    text, check = MODULE.read_text(), "once && Object"
    assert text.count(check) == 1
    careless = tmp_path / "careless.mjs"
    careless.write_text(text.replace(check, "false && Object"))
    assert in_node([case], tmp_path, careless) == [[[0, 1], units_of(3.0)]]


def test_budgets_of_sliding_windows_are_kept_alike_whatever_clocks_are_set_to(tmp_path):
    random, cases, expected = Random(11), [], []
    for number in range(60):
        lifetime, per_period, seconds = random.randrange(20, 80), random.randrange(1, 20), random.choice([1, 7, 100])
        steps, boot, uptime, time = [], 0, 1000, 10**6
        for _ in range(15):
            passed = random.randrange(12)
            uptime, time = uptime + passed, time + passed
            if random.random() < 0.2:
                time += random.choice([-500, 500])
            if random.random() < 0.1:
                boot, uptime = boot + 1, random.randrange(20)
            steps.append([random.randrange(9), time, f"{boot}", uptime])
        limits = {"perPeriod": per_period, "periodSeconds": seconds}
        cases.append(["budget", {"lifetime": lifetime, "limits": limits, "steps": steps}])
        terms = {"lifetime": lifetime, "per_period": per_period, "period_seconds": seconds}
        found: list[Any] = []
        clock = [Now(*steps[0][1:])]
        with Ledger(tmp_path / f"{number}", agent="ada", **terms, clock=lambda clock=clock: clock[0]) as ledger:
            for units, *clocks in steps:
                clock[0] = Now(*clocks)
                found.append(ledger.remaining())
                try:
                    found.append({"value": ledger.charge(units, matching="m", purpose="pick").units})
                except BudgetExhausted:
                    found.append({"exhausted": True})
        expected.append(found)
    compare(cases, expected, tmp_path)
    assert sum(step == {"exhausted": True} for found in expected for step in found) > 100


def test_a_table_that_was_prepared_is_not_looked_through_again_and_nothing_is_charged_before_it_is_received(tmp_path):
    owner = asdict(OWNER) | {"place": asdict(PLACE)}
    records = [[record_json(record), digest] for record, digest in until_table()]
    case = ["prepared", {"owner": owner, "lifetime": units_of(5.0), "draws": [0], "records": records}]
    assert in_node([case], tmp_path) == [[units_of(5.0), {"refused": "hash"}, 0, 1, units_of(4.0)]]


def test_messages_leave_at_the_same_times(tmp_path):
    random = Random(6)
    cases, expected = [], []
    for _ in range(20_000):
        copies, offset = random.random() < 0.5, random.choice([random.random(), 0.0])
        window = random.choice([0.0, 0.05, random.random(), random.uniform(1, 86_400)])
        began = random.choice([0.0, 1.7e9 + 1e4 * random.random()])
        now = began + random.choice([0.0, window * random.random(), 3 * window, random.random(), -random.random()])
        cases.append(["times", copies, offset, began, window, now])
        expected.append([sending_times(COPIES if copies else ONCE, offset, began, window, now), margin_of(window)])
        # Never within the margin, nor before the decision.
        assert expected[-1][0][0] >= max(began + margin_of(window), now) - 1e-6
    compare(cases, expected, tmp_path)


def test_reports_bids_and_charges_are_the_same(tmp_path):
    random = Random(3)
    cases, expected = [], []
    for _ in range(30_000):
        count = random.randint(1, 9)
        values = [random.choice([random.random(), 0.5]) for _ in range(count)]
        prices = [random.choice([random.random(), 0.25, 0.0, None]) for _ in range(count)]
        step = random.choice([0.03, 0.06, random.random()])
        cases.append(["bid", values, prices, step])
        expected.append(list(best_bid(values, range(count), finite(prices), 0, count, step)))
        row = chances_at_random(random, 1, random.randint(1, 6), 1.0)[0]
        draw = random.choice([random.randrange(GRID), 0, GRID - 1, row[0] - 1, row[0] % GRID])
        cases.append(["report", list(row), draw])
        expected.append(draw_report(row, draw))
        epsilon = random.choice([random.random(), random.uniform(0, 1e6), 1.0])
        cases.append(["units", epsilon])
        expected.append(units_of(epsilon))
    compare(cases, expected, tmp_path)


def test_whole_games_with_false_boards_and_restarts_are_played_alike(tmp_path):
    random = Random(4)
    cases, expected, steps, seen = [], [], 0, Counter()
    for number in range(3_000):
        machine, owner, lifetime, draw, records, restarts = game_at_random(random, number)
        store = MemoryStore(lifetime)
        told = play(machine, owner, store, draw, records, restarts)
        as_records = [[record_json(record), digest] for record, digest in records]
        game = {
            "machine": machine.__name__,
            "owner": asdict(owner),
            "lifetime": lifetime,
            "draw": draw,
            "records": as_records,
            "restarts": restarts,
        }
        cases.append(["session", game])
        expected.append([told, store.remaining(), store.kept(f"request {owner.request}")])
        steps += len(records)
        for one in told:
            seen.update(
                [one["refused"]] if "refused" in one else [send["message"]["kind"] for send in one.get("value", [])]
            )
    assert steps > 20_000
    kinds = {"join", "report", "bid", "handover", "announcement", "hash", "partition", "chain", "holder", "steered"}
    kinds |= {"roster", "result", "listed", "range"}
    assert kinds <= seen.keys(), seen
    compare(cases, expected, tmp_path)
