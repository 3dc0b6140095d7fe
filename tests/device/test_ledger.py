from __future__ import annotations

import itertools
import math
import os
import pickle
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import palmatch
from palmatch.device.ledger import (
    DAY,
    BudgetExhausted,
    Ledger,
    LedgerError,
    Limits,
    Receipt,
    epsilon_of,
    raise_limit,
    reopen,
    units_of,
)
from palmatch.errors import InputError, PalmatchError, Refused

KILLS = 1000

# Site-packages are switched off: the ledger has to run on a device that has nothing but Python, and a small process
# forks in a fraction of the time.
ALONE = """
import runpy, sys
sys.path.insert(0, sys.argv[1])
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Clock:
    def __init__(self, now: int = 10 * DAY) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def opened(path: Path, **changes: Any) -> Ledger:
    return Ledger(path, **{"agent": "ada", "lifetime": 100, "clock": Clock(), **changes})


def pay(ledger: Ledger, units: int, matching: str = "monday") -> Receipt:
    return ledger.charge(units, matching=matching, purpose="pick")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def run_alone(*arguments: object) -> str:
    source, helper = Path(palmatch.__file__).parents[1], Path(__file__).with_name("kill_ledger.py")
    command = [sys.executable, "-I", "-S", "-c", ALONE, source, helper, *arguments]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")


# What is charged adds up


@pytest.mark.parametrize("lifetime", [1, 3])
def test_every_short_run_of_charges_is_added_up_and_stops_at_the_lifetime(tmp_path: Path, lifetime: int) -> None:
    for run, units_wanted in enumerate(itertools.product(range(3), repeat=3)):
        with opened(tmp_path / str(run), lifetime=lifetime) as ledger:
            spent = 0
            for units in units_wanted:
                if spent + units <= lifetime:
                    spent += units
                    assert pay(ledger, units).remaining == lifetime - spent
                else:
                    with pytest.raises(BudgetExhausted, match="lifetime"):
                        pay(ledger, units)
                assert (ledger.spent(), ledger.remaining()) == (spent, lifetime - spent)


def naive_refusal(paid: list[Receipt], units: int, *, now: int, limits: Limits) -> tuple[str, int, int] | None:
    """Add everything up again: which limit stops the charge, what is spent of it, what remains."""
    total = sum(receipt.units for receipt in paid)
    if total + units > limits.lifetime:
        return "lifetime", total, limits.lifetime - total
    period = now // limits.period_seconds
    recent = sum(receipt.units for receipt in paid if receipt.time // limits.period_seconds == period)
    if limits.per_period is not None and recent + units > limits.per_period:
        return "period", recent, limits.per_period - recent
    return None


@settings(deadline=None, max_examples=30)
@given(
    limits=st.builds(Limits, st.integers(0, 60), st.none() | st.integers(0, 20), st.sampled_from([1, 7, 100])),
    wishes=st.lists(st.tuples(st.integers(0, 12), st.integers(-15, 15), st.sampled_from("abc")), max_size=15),
)
@example(limits=Limits(60, 5, 7), wishes=[(5, 0, "a"), (5, 7, "a"), (1, -14, "b"), (5, 21, "a")])
def test_no_run_of_charges_passes_a_limit_and_receipts_sum_to_what_is_spent(
    limits: Limits, wishes: list[tuple[int, int, str]]
) -> None:
    clock = Clock(1000)
    paid: list[Receipt] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        opened(Path(folder) / "ledger.db", clock=clock, **asdict(limits)) as ledger,
    ):
        for units, step, matching in wishes:
            clock.now += step
            now = max(1000, clock.now, *(receipt.time for receipt in paid))
            if (expected := naive_refusal(paid, units, now=now, limits=limits)) is None:
                paid.append(pay(ledger, units, matching))
                assert paid[-1].time == now
            else:
                with pytest.raises(BudgetExhausted) as refusal:
                    pay(ledger, units, matching)
                found = refusal.value
                assert (found.limit, found.spent, found.remaining, found.requested) == (*expected, units)
            assert ledger.spent() == sum(receipt.units for receipt in paid) <= limits.lifetime
        summary = ledger.summary()
    assert summary.spent == sum(summary.by_matching.values()) == sum(summary.by_period.values())
    assert limits.per_period is None or max(summary.by_period.values(), default=0) <= limits.per_period
    assert summary.charges == len(paid)


def test_a_summary_tells_matchings_periods_and_lifetime_apart(path: Path) -> None:
    clock = Clock(3 * DAY + 5)
    with opened(path, per_period=30, clock=clock) as ledger:
        pay(ledger, 10, "monday")
        pay(ledger, 20, "tuesday")
        clock.now += DAY
        pay(ledger, 4, "monday")
        summary = ledger.summary()
        assert (summary.agent, summary.limits) == ("ada", Limits(100, 30, DAY))
        assert (summary.spent, summary.remaining, summary.charges) == (34, 66, 3)
        assert (summary.period_start, summary.period_spent, summary.period_remaining) == (4 * DAY, 4, 26)
        assert summary.by_matching == {"monday": 14, "tuesday": 20}
        assert summary.by_period == {3 * DAY: 30, 4 * DAY: 4}
        assert [change.kind for change in summary.limit_changes] == ["opened"]
        assert summary.period_remaining == ledger.remaining()


def test_entries_tell_what_was_charged_when_and_why(path: Path) -> None:
    with opened(path) as ledger:
        receipt = ledger.charge(7, matching="monday", purpose="back-off in round 3")
        first, second = ledger.entries()
    assert (first.kind, first.units, first.lifetime) == ("opened", 0, 100)
    assert (second.kind, second.matching, second.purpose) == ("charged", "monday", "back-off in round 3")
    assert (second.number, second.time, second.digest) == (receipt.number, receipt.time, receipt.digest)
    with pytest.raises(AttributeError):
        second.units = 0  # type: ignore[misc]


def test_a_long_ledger_is_read_to_its_end(path: Path) -> None:
    with opened(path, lifetime=10**6) as ledger:
        ledger._file._run("PRAGMA synchronous = OFF")  # only to be quick: nothing is lost here
        total = sum(pay(ledger, units % 5).units for units in range(1201))
        assert sum(entry.units for entry in ledger.entries()) == total == ledger.spent()
        assert ledger.verify() == 1202


def test_a_refusal_says_which_limit_and_how_much_epsilon_is_left_and_writes_nothing(path: Path) -> None:
    with opened(path, lifetime=units_of(10), per_period=units_of(3)) as ledger:
        pay(ledger, units_of(2.75))
        before = path.read_bytes()
        with pytest.raises(BudgetExhausted) as refusal:
            pay(ledger, units_of(1))
        assert path.read_bytes() == before
        assert str(refusal.value) == (
            "The period budget is exhausted: ε = 2.75 is spent and 0.25 remains, but 1 was requested."
        )
        assert isinstance(refusal.value, PalmatchError)
        pay(ledger, units_of(0.25))


def test_a_refusal_survives_the_way_to_another_process() -> None:
    there = BudgetExhausted("period", spent=1, requested=3, remaining=2)
    back = pickle.loads(pickle.dumps(there))
    assert (str(back), back.limit, back.spent, back.requested, back.remaining) == (str(there), "period", 1, 3, 2)


def test_an_act_without_a_price_passes_when_nothing_is_left(path: Path) -> None:
    with opened(path, lifetime=5) as ledger:
        pay(ledger, 5)
        assert pay(ledger, 0).remaining == 0
    with opened(path, lifetime=3) as ledger:
        assert (ledger.spent(), ledger.remaining(), pay(ledger, 0).units) == (5, 0, 0)


def test_the_largest_budget_can_be_spent_to_its_last_unit(path: Path) -> None:
    most = 2**63 - 1
    with opened(path, lifetime=most, per_period=most) as ledger:
        pay(ledger, most - 1)
        pay(ledger, 1)
        with pytest.raises(BudgetExhausted):
            pay(ledger, most)
        assert ledger.spent() == most


# Units and ε


@given(st.floats(0, 2**31, exclude_max=True))
def test_a_charge_in_units_is_never_less_than_its_epsilon(epsilon: float) -> None:
    units = units_of(epsilon)
    assert Fraction(units, 2**32) >= Fraction(epsilon) > Fraction(units - 1, 2**32)
    assert units <= 2**63 - 1


@given(st.integers(0, 2**63 - 1))
def test_an_epsilon_shown_is_never_less_than_its_units(units: int) -> None:
    epsilon = epsilon_of(units)
    assert Fraction(epsilon) >= Fraction(units, 2**32)
    assert units == 0 or Fraction(math.nextafter(epsilon, 0)) < Fraction(units, 2**32)


@pytest.mark.parametrize("epsilon", [-1e-300, math.nan, math.inf, 2.0**31])
def test_an_impossible_epsilon_is_named(epsilon: float) -> None:
    with pytest.raises(InputError, match="epsilon="):
        units_of(epsilon)


# Periods and clocks


def test_a_new_day_brings_a_new_daily_budget_until_the_lifetime_is_spent(path: Path) -> None:
    clock = Clock(10 * DAY)
    with opened(path, lifetime=25, per_period=10, clock=clock) as ledger:
        for day in range(2):
            clock.now = (10 + day) * DAY
            pay(ledger, 10)
            clock.now += DAY - 1
            assert ledger.remaining() == 0
            with pytest.raises(BudgetExhausted, match="The period budget"):
                pay(ledger, 1)
        clock.now = 12 * DAY
        assert ledger.remaining() == 5
        with pytest.raises(BudgetExhausted, match="The lifetime budget"):
            pay(ledger, 6)


def test_setting_the_clock_back_gives_no_budget_back(path: Path) -> None:
    clock = Clock(10 * DAY)
    with opened(path, per_period=10, clock=clock) as ledger:
        pay(ledger, 6)
        clock.now = 11 * DAY
        pay(ledger, 9)
    for earlier in (10 * DAY, 9 * DAY, 0):
        clock.now = earlier
        with opened(path, per_period=10, clock=clock) as ledger:
            assert ledger.remaining() == 1
            assert ledger.summary().period_start == 11 * DAY
            with pytest.raises(BudgetExhausted):
                pay(ledger, 2)
    with opened(path, per_period=10, clock=clock) as ledger:
        assert pay(ledger, 1).time == 11 * DAY
        clock.now = 12 * DAY
        assert ledger.remaining() == 10


def test_a_clock_that_fails_costs_nothing_and_permits_nothing(path: Path) -> None:
    clock = Clock()
    with opened(path, clock=clock) as ledger:
        clock.now = 1.5  # type: ignore[assignment]
        with pytest.raises(InputError, match=r"clock\(\)=1.5"):
            pay(ledger, 1)
        clock.now = 11 * DAY
        assert pay(ledger, 1).remaining == 99


# Limits


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"lifetime": 101}, "lifetime=101"),
        ({"per_period": 11}, "per_period=11"),
        ({"per_period": None}, "per_period=None"),
        ({"period_seconds": 3600}, "period_seconds=3600"),
        ({"period_seconds": 2 * DAY}, "period_seconds=172800"),
        ({"lifetime": 50, "per_period": 11}, "per_period=11"),
    ],
)
def test_a_configuration_file_cannot_raise_a_budget(path: Path, changes: dict[str, Any], word: str) -> None:
    opened(path, per_period=10).close()
    with pytest.raises(InputError, match=f"{word}.* is stored.*raise_limit"):
        opened(path, **{"per_period": 10, **changes})
    with reopen(path) as ledger:
        assert (ledger.summary().limits, len(list(ledger.entries()))) == (Limits(100, 10, DAY), 1)


def test_a_lowered_budget_stays_lowered_also_for_a_process_that_had_it_open(path: Path) -> None:
    with opened(path) as early:
        pay(early, 20)
        with opened(path, lifetime=25, per_period=50) as late:
            assert late.summary().limit_changes[-1].kind == "lowered"
        assert early.remaining() == 5
        with pytest.raises(InputError):
            opened(path, lifetime=26, per_period=50)
        with opened(path, lifetime=10, per_period=50) as late:
            assert (late.spent(), late.remaining()) == (20, 0)
        with pytest.raises(BudgetExhausted) as refusal:
            pay(early, 1)
    assert (refusal.value.spent, refusal.value.remaining) == (20, 0)


def test_a_raised_budget_is_on_record_with_time_and_reason(path: Path) -> None:
    with opened(path, lifetime=10) as ledger:
        pay(ledger, 10)
        raise_limit(path, lifetime=15, per_period=4, reason="owner agreed", clock=Clock(20 * DAY))
        raised = list(ledger.entries())[-1]
        assert (raised.kind, raised.time, raised.purpose) == ("raised", 20 * DAY, "owner agreed")
        assert (raised.lifetime, raised.per_period, raised.units, raised.spent) == (15, 4, 0, 10)
        assert ledger.remaining() == 4
        assert ledger.verify() == 3


def test_raising_a_budget_needs_a_reason_and_something_to_raise(path: Path) -> None:
    opened(path).close()
    with pytest.raises(InputError, match="reason"):
        raise_limit(path, lifetime=200, per_period=None, reason="")
    with pytest.raises(InputError, match="raises nothing"):
        raise_limit(path, lifetime=90, per_period=None, reason="typing error")
    with pytest.raises(LedgerError, match="found no file"):
        raise_limit(path.with_name("other"), lifetime=200, per_period=None, reason="owner agreed")


def test_a_ledger_can_be_shown_without_knowing_its_agent_or_limits(path: Path) -> None:
    with opened(path, agent="Bob's phone", lifetime=7, per_period=3, period_seconds=60) as ledger:
        pay(ledger, 2)
    with reopen(path, clock=Clock()) as ledger:
        summary = ledger.summary()
    assert (summary.agent, summary.limits, summary.spent) == ("Bob's phone", Limits(7, 3, 60), 2)


def test_an_agent_cannot_spend_the_budget_of_another(path: Path) -> None:
    opened(path).close()
    with pytest.raises(InputError, match=r"'ada'.*'bob'"):
        opened(path, agent="bob")


@pytest.mark.parametrize("units", [-1, 1.0, True, "1", None, 2**63])
def test_a_charge_that_is_no_whole_number_of_units_is_refused(path: Path, units: Any) -> None:
    with opened(path) as ledger:
        with pytest.raises(InputError, match="units="):
            pay(ledger, units)
        assert ledger.spent() == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"agent": ""},
        {"agent": "a\nb"},
        {"agent": "\ud800"},
        {"lifetime": -1},
        {"lifetime": 1.5},
        {"per_period": -1},
        {"period_seconds": 0},
    ],
)
def test_impossible_terms_make_no_file(path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(changes))):
        opened(path, **changes)
    assert not path.exists()


# What is charged stays charged


def test_a_charge_waits_until_the_disk_has_it(path: Path) -> None:
    with opened(path) as ledger:
        assert ledger._file._run("PRAGMA synchronous") == [(3,)]
        assert ledger._file._run("PRAGMA journal_mode") == [("truncate",)]
        pay(ledger, 1)
        alone = path.with_name("alone.db")
        shutil.copy(path, alone)
    with opened(alone) as copy:
        assert copy.spent() == 1


def test_a_tool_that_left_the_file_in_another_journal_mode_costs_no_charge(path: Path) -> None:
    with opened(path) as ledger:
        pay(ledger, 1)
    with closing(sqlite3.connect(path)) as tool:
        assert tool.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
    with opened(path) as ledger:
        pay(ledger, 1)
        assert ledger._file._run("PRAGMA journal_mode") == [("truncate",)]
        assert ledger.spent() == 2


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entry SET units = 0",
        "UPDATE entry SET spent = 0 WHERE number = 2",
        "DELETE FROM entry WHERE number = 2",
        "INSERT OR REPLACE INTO entry SELECT * FROM entry WHERE number = 1",
        "INSERT INTO entry SELECT number + 5, kind, time, agent, matching, purpose, units, spent, lifetime,"
        " per_period, period_seconds, digest FROM entry",
    ],
)
def test_another_program_cannot_change_or_delete_a_charge(path: Path, statement: str) -> None:
    with opened(path) as ledger:
        pay(ledger, 3)
        with closing(sqlite3.connect(path)) as program, pytest.raises(sqlite3.IntegrityError, match="append-only"):
            program.execute(statement)
        assert (ledger.spent(), ledger.verify()) == (3, 2)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entry SET units = 1, spent = 1 WHERE number = 2",
        "UPDATE entry SET purpose = 'other' WHERE number = 2",
        "UPDATE entry SET time = 0 WHERE number = 2",
        "UPDATE entry SET lifetime = 500",
        "UPDATE entry SET number = 9 WHERE number = 4",
        "DELETE FROM entry WHERE number = 2",
        "DELETE FROM entry",
    ],
)
def test_a_history_that_was_changed_is_noticed_when_the_ledger_is_opened(path: Path, statement: str) -> None:
    with opened(path) as ledger:
        for _ in range(3):
            pay(ledger, 3)
        guards = ledger._file._run("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
    with closing(sqlite3.connect(path)) as program, program:
        for name, _ in guards:
            program.execute(f"DROP TRIGGER {name}")
        program.execute(statement)
        for _, sql in guards:
            program.execute(sql)
    with pytest.raises(LedgerError, match="do not act"):
        opened(path)


@pytest.mark.parametrize("wrong", [{"units": 2, "spent": 4}, {"time": 5}])
def test_a_row_that_is_sealed_but_does_not_add_up_is_refused(path: Path, wrong: dict[str, int]) -> None:
    with opened(path) as ledger:
        pay(ledger, 3)
        with ledger._file.transaction():
            ledger._file.append(ledger._file.tip(), **{"units": 0, **wrong})
        with pytest.raises(LedgerError, match="the last entry, 3"):
            pay(ledger, 1)
    with pytest.raises(LedgerError, match="entry 3 does not follow"):
        opened(path)


def test_a_ledger_whose_guards_were_removed_is_refused(path: Path) -> None:
    opened(path).close()
    with closing(sqlite3.connect(path)) as program, program:
        program.execute("DROP TRIGGER entry_remains")
    with pytest.raises(LedgerError, match="tables are not as they were made"):
        opened(path)


def test_a_receipt_kept_elsewhere_shows_that_a_ledger_is_an_older_copy(path: Path) -> None:
    with opened(path) as ledger:
        first = pay(ledger, 1)
        shutil.copy(path, path.with_name("old"))
        second = pay(ledger, 1)
        assert ledger.verify(kept=second) == 3
    with opened(path.with_name("old")) as ledger:
        assert ledger.verify(kept=first) == 2
        with pytest.raises(LedgerError, match="older copy"):
            ledger.verify(kept=second)


def put_back(old: Path, path: Path) -> None:
    path.write_bytes(old.read_bytes())


def replace_by(old: Path, path: Path) -> None:
    old.rename(path)


def remove(old: Path, path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("restore", [put_back, replace_by, remove])
def test_a_file_replaced_under_a_running_agent_gives_nothing_back(
    path: Path, restore: Callable[[Path, Path], None]
) -> None:
    with opened(path, lifetime=2) as ledger:
        pay(ledger, 1)
        old = path.with_name("old")
        shutil.copy(path, old)
        pay(ledger, 1)
        restore(old, path)
        with pytest.raises(LedgerError, match=r"replaced while it was open|No such file"):
            pay(ledger, 1)


# Damage is never a free pass


def damaged_copies(path: Path) -> Iterator[bytes]:
    whole = path.read_bytes()
    random = Random(2022)
    for position in (*range(0, 100, 3), *random.sample(range(len(whole)), 200)):
        yield whole[:position] + bytes([whole[position] ^ random.randrange(1, 256)]) + whole[position + 1 :]
    for length in (*range(0, len(whole), 4096), len(whole) - 1):
        yield whole[:length]


def test_a_damaged_file_is_refused_or_still_holds_every_charge(tmp_path: Path, path: Path) -> None:
    with opened(path) as ledger:
        for units in range(1, 9):
            pay(ledger, units)
        whole = list(ledger.entries())
    refused = 0
    for number, damaged in enumerate(damaged_copies(path)):
        copy = tmp_path / str(number)
        copy.write_bytes(damaged)
        try:
            with opened(copy, timeout_seconds=0.1) as ledger:
                assert list(ledger.entries()) == whole
                assert (ledger.spent(), ledger.remaining()) == (36, 64)
        except LedgerError:
            refused += 1
    assert refused > 20


def test_a_file_cut_short_is_always_refused(tmp_path: Path, path: Path) -> None:
    with opened(path) as ledger:
        pay(ledger, 1)
    whole = path.read_bytes()
    for length in range(0, len(whole), 512):
        copy = tmp_path / str(length)
        copy.write_bytes(whole[:length])
        with pytest.raises(LedgerError, match="do not act"):
            opened(copy)


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "the file is empty"), (b"id,lat,lon\n" * 500, "not SQLite"), (b"\x00" * 8192, "not SQLite")],
)
def test_a_file_that_is_no_ledger_is_named_and_left_alone(path: Path, content: bytes, words: str) -> None:
    path.write_bytes(content)
    for attempt in (opened, reopen):
        with pytest.raises(LedgerError, match=words):
            attempt(path)
    assert path.read_bytes() == content


def test_another_programs_database_is_named_and_left_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as program, program:
        program.execute("CREATE TABLE song (title)")
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="another program's file"):
        opened(path)
    assert path.read_bytes() == before


def test_a_ledger_of_a_later_version_is_refused(path: Path) -> None:
    opened(path).close()
    with closing(sqlite3.connect(path)) as program:
        program.execute("PRAGMA user_version = 3")
    with pytest.raises(LedgerError, match="version 3, expected 2"):
        opened(path)


def test_a_ledger_whose_making_was_cut_off_can_be_made_again(path: Path) -> None:
    path.with_name("ledger.db-new").write_bytes(b"SQLite format 3, or the beginning of it")
    with opened(path) as ledger:
        pay(ledger, 1)
    assert not path.with_name("ledger.db-new").exists()
    path.write_bytes(b"")
    with pytest.raises(LedgerError, match="the file is empty"):
        opened(path)


# No receipt, no act


def test_a_ledger_that_stays_locked_gives_no_receipt(path: Path) -> None:
    with opened(path, timeout_seconds=0.05) as ledger, closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        for attempt in (lambda: pay(ledger, 1), ledger.spent, lambda: opened(path, timeout_seconds=0.05)):
            with pytest.raises(LedgerError, match="another process kept the ledger locked"):
                attempt()
        other.rollback()
        assert (pay(ledger, 1).number, ledger.spent()) == (2, 1)


def test_a_reader_in_the_way_of_the_commit_gives_no_receipt(path: Path) -> None:
    with opened(path, timeout_seconds=0.05) as ledger, closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN")
        other.execute("SELECT * FROM entry").fetchone()
        with pytest.raises(LedgerError, match="another process kept the ledger locked"):
            pay(ledger, 1)
        other.rollback()
        assert ledger.spent() == 0
        pay(ledger, 1)


def test_a_slow_reader_does_not_block_charges(path: Path) -> None:
    with opened(path) as reader, opened(path, timeout_seconds=0.05) as ledger:
        pay(ledger, 1)
        reading = reader.entries()
        next(reading)
        pay(ledger, 1)
        assert [entry.units for entry in reading] == [1, 1]


def test_a_full_disk_gives_no_receipt_and_loses_none(path: Path) -> None:
    with opened(path, lifetime=10**6) as ledger:
        pages = ledger._file._run("PRAGMA page_count")[0][0]
        ledger._file._run(f"PRAGMA max_page_count = {pages}")
        paid: list[Receipt] = []
        with pytest.raises(LedgerError, match="disk is full"):
            paid.extend(pay(ledger, 1) for _ in range(1000))
        assert ledger.spent() == len(paid) > 0
        ledger._file._run("PRAGMA max_page_count = 1000000")
        assert pay(ledger, 1).number == ledger.verify()


@contextmanager
def without_rights() -> Iterator[None]:
    """No other user may write where root made the folder; others are bound by the folder's mode as they are."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        if user == 0:
            os.seteuid(user)


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="folders have no mode here")
def test_a_read_only_folder_gives_no_receipt() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "ledger.db"
        with opened(path) as ledger:
            pay(ledger, 1)
        folder.joinpath("ledger.db-journal").unlink()
        path.chmod(0o666)
        folder.chmod(0o555)
        try:
            with without_rights():
                for name in ("ledger.db", "new.db"):
                    with pytest.raises(LedgerError, match=f"{name}: .*read-only"):
                        opened(folder / name)
        finally:
            folder.chmod(0o755)
        path.chmod(0o444)
        with without_rights(), pytest.raises(LedgerError, match="read-only"):
            opened(path)
        with opened(path) as ledger:
            assert ledger.spent() == 1


def test_a_path_that_cannot_hold_a_ledger_is_named(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=r"missing/ledger\.db: No such file or directory"):
        opened(tmp_path / "missing" / "ledger.db")
    with pytest.raises(LedgerError, match="cannot be opened"):
        opened(tmp_path)


def test_a_closed_ledger_gives_no_receipt(path: Path) -> None:
    with opened(path) as ledger:
        pass
    with pytest.raises(LedgerError, match="closed"):
        pay(ledger, 1)


def test_a_ledger_taken_into_another_process_or_thread_gives_no_receipt(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caught: list[Exception] = []

    def elsewhere() -> None:
        try:
            pay(ledger, 1)
        except LedgerError as error:
            caught.append(error)

    with opened(path) as ledger:
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: -1)
            elsewhere()
        assert len(caught) == 2
        assert "thread" in str(caught[0])
        assert "opened before a fork" in str(caught[1])
        assert ledger.spent() == 0


# Many processes


@forks
def test_two_processes_cannot_both_spend_the_last_of_a_budget(tmp_path: Path) -> None:
    run_alone("race", tmp_path, 15, 4)


@forks
def test_processes_that_make_and_share_a_ledger_spend_all_of_it_and_no_more(tmp_path: Path) -> None:
    run_alone("share", tmp_path, 100, 4)


@forks
def test_a_process_killed_at_any_instant_never_acted_without_a_charge(memory_folder: Path) -> None:
    assert int(run_alone("kill", memory_folder, KILLS, 2022)) > 0


# A ledger that moves


@forks
def test_moving_a_ledger_after_a_crash_gives_no_charge_back(tmp_path: Path) -> None:
    """3,014 charges must not become 13: the journal of the crash stays behind, and the file comes back to it."""
    run_alone("come_back", tmp_path, 13, 3)


@forks
def test_a_ledger_torn_by_a_crash_is_whole_again_beside_its_journal_and_refused_without_it(tmp_path: Path) -> None:
    run_alone("torn", tmp_path, 5, 0)


@forks
def test_a_ledger_that_crashed_at_two_places_gives_no_charge_back(tmp_path: Path) -> None:
    run_alone("twice", tmp_path, 5, 1)


@forks
def test_whatever_crashes_and_moves_happen_no_receipt_is_lost(tmp_path: Path) -> None:
    run_alone("wander", tmp_path, 12, 2022)


@pytest.mark.skipif(not hasattr(os, "link"), reason="no hard links here")
def test_a_ledger_with_a_second_name_is_refused(path: Path) -> None:
    with opened(path) as ledger:
        pay(ledger, 1)
    os.link(path, path.with_name("other"))
    for name in (path, path.with_name("other")):
        with pytest.raises(LedgerError, match="second name"):
            opened(name)
    path.with_name("other").unlink()
    with opened(path) as ledger:
        assert ledger.spent() == 1


def test_a_ledger_behind_a_symbolic_link_is_the_same_ledger(path: Path) -> None:
    with opened(path) as ledger:
        pay(ledger, 1)
    link = path.with_name("link")
    link.symlink_to(path)
    with opened(link) as ledger:
        assert pay(ledger, 1).number == 3
    assert not link.with_name("link-journal").exists()


# What is remembered with a charge


def test_a_charge_and_what_is_remembered_with_it_are_both_there_or_neither(path: Path) -> None:
    with opened(path) as ledger:
        ledger.charge(40, matching="m", purpose="report", keep={"report": "3"})
        with pytest.raises(BudgetExhausted):
            ledger.charge(61, matching="m", purpose="report", keep={"report": "4"})
        assert (ledger.spent(), ledger.kept("report"), ledger.kept("other")) == (40, "3", None)
    with opened(path) as ledger:
        assert ledger.kept("report") == "3"
        ledger.charge(0, matching="m", purpose="report", keep={"report": "5"})
        assert (ledger.spent(), ledger.kept("report")) == (40, "5")


def test_a_fact_that_is_pinned_stays_and_another_one_is_refused(path: Path) -> None:
    with opened(path) as ledger:
        ledger.pin("partition", "1000 m")
        ledger.pin("partition", "1000 m")
    with opened(path) as ledger, pytest.raises(Refused, match="another partition") as refusal:
        ledger.pin("partition", "500 m")
    assert refusal.value.code == "partition"


@pytest.mark.parametrize(
    "statement",
    ["DELETE FROM kept", "UPDATE kept SET number = 0", "INSERT OR REPLACE INTO kept VALUES ('report', '4', 2, '')"],
)
def test_another_program_cannot_remove_what_is_remembered(path: Path, statement: str) -> None:
    with opened(path) as ledger:
        ledger.charge(1, matching="m", purpose="report", keep={"report": "3"})
        with closing(sqlite3.connect(path)) as program, pytest.raises(sqlite3.IntegrityError, match="kept"):
            program.execute(statement)
        assert ledger.kept("report") == "3"


def test_a_remembered_value_that_was_changed_is_noticed(path: Path) -> None:
    with opened(path) as ledger:
        ledger.charge(1, matching="m", purpose="report", keep={"report": "3"})
        with closing(sqlite3.connect(path)) as program, program:
            program.execute("UPDATE kept SET value = '4'")
        with pytest.raises(LedgerError, match="kept as report"):
            ledger.kept("report")
    with pytest.raises(LedgerError, match="kept as report"):
        opened(path)


def test_a_ledger_of_the_first_version_is_brought_up_to_date_with_its_next_charge(path: Path) -> None:
    with opened(path) as ledger:
        pay(ledger, 7)
    with closing(sqlite3.connect(path)) as program, program:
        program.execute("DROP TABLE kept")
        program.execute("PRAGMA user_version = 1")
    with opened(path) as ledger:
        assert (ledger.spent(), ledger.kept("report"), ledger.verify()) == (7, None, 2)
        ledger.charge(1, matching="m", purpose="report", keep={"report": "3"})
        assert (ledger.spent(), ledger.kept("report"), ledger.verify()) == (8, "3", 3)
