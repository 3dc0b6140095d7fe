import errno
import io
import itertools
import math
import os
import pickle
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import palmatch
from palmatch.device import ledger as module
from palmatch.device.ledger import (
    DAY,
    BudgetExhausted,
    Ledger,
    LedgerError,
    Limits,
    Now,
    Receipt,
    device_clock,
    epsilon_of,
    raise_limit,
    reopen,
    units_of,
)
from palmatch.errors import InputError, PalmatchError, Refused

KILLS = 20

# Site-packages are switched off: the ledger has to run on a device that has nothing but Python, and a small process
# forks in a fraction of the time.
ALONE = """
import runpy, sys
sys.path.insert(0, sys.argv[1])
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Clock:
    """The clocks of a device: `wait` passes time, `set` sets the time of day, `restart` begins a new uptime."""

    def __init__(self, now=10 * DAY):
        self.now = self.uptime = now
        self.boot = "one"

    def __call__(self):
        return Now(self.now, self.boot, self.uptime)

    def wait(self, seconds):
        self.now, self.uptime = self.now + seconds, self.uptime + seconds

    def set(self, now):
        self.now = now

    def restart(self, off=0):
        self.now, self.uptime, self.boot = self.now + off, 0, f"{self.boot}, again"


def opened(path, **changes):
    return Ledger(path, **{"agent": "ada", "lifetime": 100, "clock": Clock(), **changes})


def pay(ledger, units, matching="monday"):
    return ledger.charge(units, matching=matching, purpose="pick")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.db"


def run_alone(*arguments):
    source, helper = Path(palmatch.__file__).parents[1], Path(__file__).with_name("kill_ledger.py")
    command = [sys.executable, "-I", "-S", "-c", ALONE, source, helper, *arguments]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")


@pytest.mark.parametrize("lifetime", [1, 3])
def test_every_short_run_of_charges_is_added_up_and_stops_at_the_lifetime(tmp_path, lifetime):
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


def naive_refusal(paid, units, *, now, limits):
    """Add everything up again: which limit stops the charge, what is spent of it, what remains."""
    total = sum(receipt.units for _, receipt in paid)
    if total + units > limits.lifetime:
        return "lifetime", total, limits.lifetime - total
    # Times are known by whole seconds.
    recent = sum(receipt.units for when, receipt in paid if math.floor(now) - math.floor(when) <= limits.period_seconds)
    if limits.per_period is not None and recent + units > limits.per_period:
        return "period", recent, limits.per_period - recent
    return None


@settings(max_examples=40)
@given(
    limits=st.builds(Limits, st.integers(0, 60), st.none() | st.integers(0, 20), st.sampled_from([1, 7, 100])),
    wishes=st.lists(
        st.tuples(st.integers(0, 12), st.fractions(0, 15, max_denominator=10), st.sampled_from("abc")), max_size=15
    ),
)
@example(limits=Limits(60, 5, 7), wishes=[(5, 0, "a"), (5, Fraction(79, 10), "a"), (5, Fraction(1, 10), "a")])
def test_no_window_of_charges_passes_a_limit_and_receipts_sum_to_what_is_spent(limits, wishes):
    clock, now = Clock(1000), Fraction(1000)
    paid: list[tuple[Fraction, Receipt]] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        opened(Path(folder) / "ledger.db", clock=clock, **asdict(limits)) as ledger,
    ):
        for units, step, matching in wishes:
            now += step
            clock.now = clock.uptime = math.floor(now)
            if (expected := naive_refusal(paid, units, now=now, limits=limits)) is None:
                paid.append((now, pay(ledger, units, matching)))
            else:
                with pytest.raises(BudgetExhausted) as refusal:
                    pay(ledger, units, matching)
                found = refusal.value
                assert (found.limit, found.spent, found.remaining, found.requested) == (*expected, units)
            assert ledger.spent() == sum(receipt.units for _, receipt in paid) <= limits.lifetime
        summary = ledger.summary()
    assert summary.charges == len(paid)
    for begin, _ in paid:
        window = sum(receipt.units for when, receipt in paid if begin <= when <= begin + limits.period_seconds)
        assert limits.per_period is None or window <= limits.per_period


def test_a_summary_tells_matchings_periods_and_lifetime_apart(path):
    clock = Clock(3 * DAY + 5)
    with opened(path, per_period=30, clock=clock) as ledger:
        pay(ledger, 10, "monday")
        pay(ledger, 20, "tuesday")
        clock.wait(DAY + 1)
        pay(ledger, 4, "monday")
        ledger.keep({"open": "request"})
        summary = ledger.summary()
        assert (summary.agent, summary.limits) == ("ada", Limits(100, 30, DAY))
        assert (summary.spent, summary.remaining, summary.charges, summary.lines) == (34, 66, 3, 5)
        assert (summary.period_spent, summary.period_remaining) == (4, 26)
        assert [change.kind for change in summary.limit_changes] == ["opened"]
        assert summary.period_remaining == ledger.remaining()


def test_entries_tell_what_was_charged_when_and_why(path):
    with opened(path) as ledger:
        receipt = ledger.charge(7, matching="monday", purpose="back-off in round 3")
        first, second = ledger.entries()
    assert (first.kind, first.units, first.lifetime) == ("opened", 0, 100)
    assert (second.kind, second.matching, second.purpose) == ("charged", "monday", "back-off in round 3")
    assert (second.number, second.time, second.digest) == (receipt.number, receipt.time, receipt.digest)
    with pytest.raises(AttributeError):
        second.units = 0


def test_a_long_ledger_is_read_to_its_end(path):
    with opened(path, lifetime=10**6) as ledger:
        total = sum(pay(ledger, units % 5).units for units in range(1201))
        assert sum(entry.units for entry in ledger.entries()) == total == ledger.spent()
        assert ledger.verify() == 1202
    with opened(path, lifetime=10**6) as ledger:
        assert (ledger.spent(), ledger.verify()) == (total, 1202)


def test_a_refusal_says_which_limit_and_how_much_epsilon_is_left_and_writes_nothing(path):
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


def test_a_refusal_survives_the_way_to_another_process():
    there = BudgetExhausted("period", spent=1, requested=3, remaining=2)
    back = pickle.loads(pickle.dumps(there))
    assert (str(back), back.limit, back.spent, back.requested, back.remaining) == (str(there), "period", 1, 3, 2)


def test_an_act_without_a_price_passes_when_nothing_is_left(path):
    with opened(path, lifetime=5) as ledger:
        pay(ledger, 5)
        assert pay(ledger, 0).remaining == 0
    with opened(path, lifetime=3) as ledger:
        assert (ledger.spent(), ledger.remaining(), pay(ledger, 0).units) == (5, 0, 0)


def test_the_largest_budget_can_be_spent_to_its_last_unit(path):
    most = 2**63 - 1
    with opened(path, lifetime=most, per_period=most) as ledger:
        pay(ledger, most - 1)
        pay(ledger, 1)
        with pytest.raises(BudgetExhausted):
            pay(ledger, most)
        assert ledger.spent() == most


@given(st.floats(0, 2**31, exclude_max=True))
def test_a_charge_in_units_is_never_less_than_its_epsilon(epsilon):
    units = units_of(epsilon)
    assert Fraction(units, 2**32) >= Fraction(epsilon) > Fraction(units - 1, 2**32)
    assert units <= 2**63 - 1


@given(st.integers(0, 2**63 - 1))
def test_an_epsilon_shown_is_never_less_than_its_units(units):
    epsilon = epsilon_of(units)
    assert Fraction(epsilon) >= Fraction(units, 2**32)
    assert units == 0 or Fraction(math.nextafter(epsilon, 0)) < Fraction(units, 2**32)


@pytest.mark.parametrize("epsilon", [-1e-300, math.nan, math.inf, 2.0**31])
def test_an_impossible_epsilon_is_named(epsilon):
    with pytest.raises(InputError, match="epsilon="):
        units_of(epsilon)


def test_a_charge_counts_for_a_whole_period_and_for_ever_in_the_lifetime(path):
    clock = Clock()
    with opened(path, lifetime=25, per_period=10, clock=clock) as ledger:
        pay(ledger, 4)
        clock.wait(DAY // 2)
        pay(ledger, 6)
        clock.wait(DAY // 2)
        # A day ago by whole seconds, which may be less than a day.
        assert ledger.remaining() == 0
        clock.wait(1)
        assert ledger.remaining() == 4
        with pytest.raises(BudgetExhausted, match="The period budget"):
            pay(ledger, 5)
        pay(ledger, 4)
        clock.wait(2 * DAY)
        pay(ledger, 10)
        clock.wait(2 * DAY)
        assert ledger.remaining() == 1
        with pytest.raises(BudgetExhausted, match="The lifetime budget"):
            pay(ledger, 2)


@pytest.mark.parametrize("years", [-50, -1, 1, 50])
@pytest.mark.parametrize("restarted", [False, True])
def test_setting_the_clock_gives_no_budget_back(path, years, restarted):
    clock = Clock(60 * 365 * DAY)
    with opened(path, per_period=10, clock=clock) as ledger:
        pay(ledger, 9)
    if restarted:
        clock.restart()
    for _ in range(2):
        right = clock.now
        clock.set(right + years * 365 * DAY)
        with opened(path, per_period=10, clock=clock) as ledger:
            assert ledger.remaining() == 1
            with pytest.raises(BudgetExhausted):
                pay(ledger, 2)
            pay(ledger, 0)
        clock.set(right)
        with opened(path, per_period=10, clock=clock) as ledger:
            assert ledger.remaining() == 1
            pay(ledger, 0)
        clock.wait(100)
    # What has passed for sure counts, whatever was set meanwhile.
    clock.wait(DAY)
    with opened(path, per_period=10, clock=clock) as ledger:
        assert ledger.remaining() == 10


def test_the_time_for_which_a_device_was_off_or_far_away_is_not_counted(path):
    clock = Clock()
    with opened(path, per_period=10, clock=clock) as ledger:
        pay(ledger, 10)
        clock.restart(off=5 * DAY)
        clock.wait(DAY)
        assert ledger.remaining() == 0
        clock.wait(1)
        assert ledger.remaining() == 10
        pay(ledger, 10)
        # Brought to another device, which has run for a year: by the time of day only an hour has passed.
        clock.boot, clock.now, clock.uptime = "two", clock.now + 3600, 365 * DAY
        assert ledger.remaining() == 0


def test_the_clock_of_a_device_tells_its_start_and_its_uptime():
    first, second = device_clock(), device_clock()
    assert first.boot == second.boot != ""
    assert 0 <= first.uptime <= second.uptime < first.time


def test_a_clock_that_fails_costs_nothing_and_permits_nothing(path):
    clock = Clock()
    with opened(path, clock=clock) as ledger:
        clock.now = 1.5
        with pytest.raises(InputError, match=r"clock\(\).time=1.5"):
            pay(ledger, 1)
        clock.now = 11 * DAY
        assert pay(ledger, 1).remaining == 99


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
def test_a_configuration_file_cannot_raise_a_budget(path, changes, word):
    opened(path, per_period=10).close()
    with pytest.raises(InputError, match=f"{word}.* is stored.*raise_limit"):
        opened(path, **{"per_period": 10, **changes})
    with reopen(path) as ledger:
        assert (ledger.summary().limits, len(list(ledger.entries()))) == (Limits(100, 10, DAY), 1)


def test_a_lowered_budget_stays_lowered_also_for_a_process_that_had_it_open(path):
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


def test_a_raised_budget_is_on_record_with_time_and_reason(path):
    with opened(path, lifetime=10) as ledger:
        pay(ledger, 10)
        raise_limit(path, lifetime=15, per_period=4, reason="owner agreed", clock=Clock(20 * DAY))
        raised = list(ledger.entries())[-1]
        assert (raised.kind, raised.time, raised.purpose) == ("raised", 20 * DAY, "owner agreed")
        assert (raised.lifetime, raised.per_period, raised.units, raised.spent) == (15, 4, 0, 10)
        assert ledger.remaining() == 4
        assert ledger.verify() == 3


def test_raising_a_budget_needs_a_reason_and_something_to_raise(path):
    opened(path).close()
    with pytest.raises(InputError, match="reason"):
        raise_limit(path, lifetime=200, per_period=None, reason="")
    with pytest.raises(InputError, match="raises nothing"):
        raise_limit(path, lifetime=90, per_period=None, reason="typing error")
    with pytest.raises(LedgerError, match="found no file"):
        raise_limit(path.with_name("other"), lifetime=200, per_period=None, reason="owner agreed")


def test_an_agent_cannot_spend_the_budget_of_another(path):
    opened(path).close()
    with pytest.raises(InputError, match=r"'ada'.*'bob'"):
        opened(path, agent="bob")


@pytest.mark.parametrize("units", [-1, 1.0, True, "1", None, 2**63])
def test_a_charge_that_is_no_whole_number_of_units_is_refused(path, units):
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
def test_impossible_terms_make_no_file(path, changes):
    with pytest.raises(InputError, match=next(iter(changes))):
        opened(path, **changes)
    assert not path.exists()


@pytest.fixture
def calls(monkeypatch):
    """What is asked of the disk: names of functions, in order."""
    made: list[str] = []
    sync, link = os.fsync, os.link

    def logged_sync(number):
        made.append("folder" if stat.S_ISDIR(os.fstat(number).st_mode) else f"file of {os.fstat(number).st_size}")
        sync(number)

    def logged_link(*names):
        made.append("link")
        link(*names)

    monkeypatch.setattr(os, "fsync", logged_sync)
    monkeypatch.setattr(os, "link", logged_link)
    return made


def test_a_charge_waits_until_the_disk_has_it(path, calls):
    with opened(path) as ledger:
        size = path.stat().st_size
        # The content, then its name, then the folder that holds the name; what was found is synced before it counts.
        assert calls == [f"file of {size}", "link", "folder", f"file of {size}"]
        calls.clear()
        pay(ledger, 1)
        assert calls == [f"file of {path.stat().st_size}"]
        assert path.stat().st_size > size


def test_what_another_program_wrote_is_synced_before_it_is_acted_upon(path, calls):
    """Its writer may have been killed before the disk had it, and what was drawn would be drawn again."""
    with opened(path) as ledger:
        with opened(path) as other:
            other.charge(1, matching="m", purpose="report", keep={"report": "3"})
        calls.clear()
        assert ledger.kept("report") == "3"
        assert calls == [f"file of {path.stat().st_size}"]
        assert ledger.kept("report") == "3"
        assert len(calls) == 1


def test_a_disk_that_fails_to_sync_gives_no_receipt_and_leaves_nothing(path, monkeypatch):
    def failing(_):
        raise OSError(errno.EIO, "Input/output error")

    with opened(path) as ledger:
        pay(ledger, 1)
        before = path.read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", failing)
            with pytest.raises(LedgerError, match="Input/output error; no receipt was given"):
                pay(ledger, 1)
        assert path.read_bytes() == before
        with pytest.raises(LedgerError, match="closed"):
            pay(ledger, 1)
    with opened(path) as ledger:
        assert (ledger.spent(), pay(ledger, 1).number) == (1, 3)


def test_a_line_that_a_crash_cut_off_is_cut_before_anything_is_appended(path):
    with opened(path) as early:
        pay(early, 1)
        whole = path.read_bytes()
        pay(early, 2)
    line = path.read_bytes()[len(whole) :]
    for length in range(len(line)):
        path.write_bytes(whole + line[:length])
        with reopen(path) as ledger:
            assert (ledger.spent(), path.read_bytes()) == (1, whole + line[:length])
        with opened(path) as ledger:
            receipt = pay(ledger, 4)
            assert (ledger.spent(), ledger.verify(kept=receipt)) == (5, 3)
        with opened(path) as ledger:
            assert (ledger.spent(), ledger.verify()) == (5, 3)
        assert path.read_bytes().startswith(whole)


def lines_of(path):
    return path.read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: [*lines[:2], lines[2].replace(b'"units":3', b'"units":1'), *lines[3:]],
        lambda lines: [*lines[:2], lines[2].replace(b"pick", b"kick"), *lines[3:]],
        lambda lines: [line.replace(b'"lifetime":100', b'"lifetime":500') for line in lines],
        lambda lines: [*lines[:2], *lines[3:]],
        lambda lines: [*lines[:2], lines[3], lines[2], lines[4]],
        lambda lines: [*lines, lines[-1]],
        lambda lines: [*lines[:-1], lines[-1][:-9] + b"\n"],
        lambda lines: [*lines, b"\n"],
    ],
)
def test_a_history_that_was_changed_is_noticed(path, change):
    with opened(path) as ledger:
        for _ in range(3):
            pay(ledger, 3)
    path.write_bytes(b"".join(change(lines_of(path))))
    with pytest.raises(LedgerError, match=r"entry \d does not follow.* do not act"):
        opened(path)
    with pytest.raises(LedgerError, match=r"entry \d does not follow.*its agent has to treat"):
        reopen(path)


def test_a_receipt_kept_elsewhere_shows_that_a_ledger_is_an_older_copy(path):
    with opened(path) as ledger:
        first = pay(ledger, 1)
        shutil.copy(path, path.with_name("old"))
        second = pay(ledger, 1)
        assert ledger.verify(kept=second) == 3
    with opened(path.with_name("old")) as ledger:
        assert ledger.verify(kept=first) == 2
        with pytest.raises(LedgerError, match="older copy"):
            ledger.verify(kept=second)


def put_back(old, path):
    path.write_bytes(old.read_bytes())


def replace_by(old, path):
    old.rename(path)


def remove(old, path):
    path.unlink()


@pytest.mark.parametrize("restore", [put_back, replace_by, remove])
def test_a_file_replaced_under_a_running_agent_gives_nothing_back(path, restore):
    with opened(path, lifetime=2) as ledger:
        pay(ledger, 1)
        old = path.with_name("old")
        shutil.copy(path, old)
        pay(ledger, 1)
        restore(old, path)
        with pytest.raises(LedgerError, match=r"replaced while it was open|No such file"):
            pay(ledger, 1)


def damaged_copies(path):
    whole = path.read_bytes()
    random = Random(2022)
    for position in (*range(0, 100, 3), *random.sample(range(len(whole)), 200)):
        yield whole[:position] + bytes([whole[position] ^ random.randrange(1, 256)]) + whole[position + 1 :]
    for length in (*range(0, len(whole), 4096), len(whole) - 1):
        yield whole[:length]


def test_a_damaged_file_is_refused(tmp_path, path):
    """Only the end of the last line can be missing unnoticed: so looks a charge for which no receipt was given."""
    with opened(path) as ledger:
        for units in range(1, 9):
            pay(ledger, units)
        whole = list(ledger.entries())
    size, copy, refused = path.stat().st_size, tmp_path / "copy", 0
    for damaged in damaged_copies(path):
        copy.write_bytes(damaged)
        try:
            with opened(copy) as ledger:
                assert list(ledger.entries()) == whole[: len(list(ledger.entries()))]
                assert len(list(ledger.entries())) >= damaged.count(b"\n") - 1
                # A newline that became another byte, at the end.
                assert len(damaged) < size or damaged[-1:] != b"\n"
        except LedgerError:
            refused += 1
    assert refused > 100


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the file is empty"),
        (b"id,lat,lon\n" * 500, "another program's file"),
        (b"\x00" * 8192, "another program's file"),
        (b"SQLite format 3\x00" + bytes(8176), "ledgers of palmatch 0.2 were; what it has counted stays spent"),
        (b"palmatch ledger 4\n", "a later version; update palmatch"),
        (module.HEADING, "found no entries"),
    ],
)
def test_a_file_that_is_no_ledger_is_named_and_left_alone(path, content, words):
    path.write_bytes(content)
    for attempt in (opened, reopen):
        with pytest.raises(LedgerError, match=words):
            attempt(path)
    assert path.read_bytes() == content


def test_a_ledger_is_made_once_and_nothing_else_is_left(path):
    with opened(path) as ledger:
        pay(ledger, 1)
    assert list(path.parent.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_ledger_that_stays_locked_gives_no_receipt(path):
    with opened(path, timeout_seconds=0.05) as ledger, opened(path) as other:
        with other._locked():
            for attempt in (lambda: pay(ledger, 1), ledger.spent, lambda: opened(path, timeout_seconds=0.05)):
                with pytest.raises(LedgerError, match="another process kept the ledger locked"):
                    attempt()
        assert (pay(ledger, 1).number, ledger.spent()) == (2, 1)


def test_a_slow_reader_does_not_block_charges(path):
    with opened(path) as reader, opened(path, timeout_seconds=0.05) as ledger:
        pay(ledger, 1)
        reading = reader.entries()
        next(reading)
        pay(ledger, 1)
        assert [entry.units for entry in reading] == [1]


@pytest.mark.parametrize("written", [0, 1, 40])
def test_a_full_disk_gives_no_receipt_and_loses_none(path, monkeypatch, written):
    class Full(io.FileIO):
        def write(self, data):
            return super().write(data[:written])

    with opened(path) as ledger:
        pay(ledger, 1)
        before = path.read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(ledger, "_file", Full(path, "r+"))
            with pytest.raises(LedgerError, match="disk is full"):
                pay(ledger, 1)
        assert path.read_bytes() == before
    with opened(path) as ledger:
        assert (ledger.spent(), pay(ledger, 1).number) == (1, 3)


@contextmanager
def without_rights():
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
def test_a_read_only_folder_or_file_gives_no_receipt():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "ledger.db"
        with opened(path) as ledger:
            pay(ledger, 1)
        path.chmod(0o444)
        folder.chmod(0o555)
        try:
            with without_rights():
                for name in ("ledger.db", "new.db"):
                    with pytest.raises(LedgerError, match=f"{name}: .*read-only"):
                        opened(folder / name)
                with reopen(path) as ledger:
                    assert ledger.spent() == 1
        finally:
            folder.chmod(0o755)


def test_a_path_that_cannot_hold_a_ledger_is_named(tmp_path):
    with pytest.raises(LedgerError, match=r"missing/ledger\.db: No such file or directory"):
        opened(tmp_path / "missing" / "ledger.db")
    with pytest.raises(LedgerError, match="found a folder"):
        opened(tmp_path)


def test_a_ledger_taken_into_another_process_or_thread_gives_no_receipt(path, monkeypatch):
    caught: list[Exception] = []

    def elsewhere():
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
        assert [str(error).count("opened in another process or thread") for error in caught] == [1, 1]
        assert ledger.spent() == 0


@forks
def test_two_processes_cannot_both_spend_the_last_of_a_budget(tmp_path):
    run_alone("race", tmp_path, 15, 4)


@forks
def test_processes_that_make_and_share_a_ledger_spend_all_of_it_and_no_more(tmp_path):
    run_alone("share", tmp_path, 100, 4)


@forks
def test_a_process_killed_at_any_instant_never_acted_without_a_charge(memory_folder):
    assert int(run_alone("kill", memory_folder, KILLS, 2022)) > 0


@forks
def test_a_process_killed_at_every_write_never_acted_without_a_charge(memory_folder):
    run_alone("at_every_write", memory_folder, 0, 0)


def test_a_ledger_that_is_moved_counts_on(path):
    with opened(path) as ledger:
        pay(ledger, 1)
    moved = path.with_name("moved")
    path.rename(moved)
    with opened(moved) as ledger:
        assert pay(ledger, 1).number == ledger.verify() == 3


def test_a_ledger_behind_a_symbolic_link_is_the_same_ledger(path):
    with opened(path) as ledger:
        pay(ledger, 1)
    link = path.with_name("link")
    link.symlink_to(path)
    with opened(link) as ledger:
        assert pay(ledger, 1).number == 3


def test_a_charge_and_what_is_remembered_with_it_are_both_there_or_neither(path):
    with opened(path) as ledger:
        ledger.charge(40, matching="m", purpose="report", keep={"report": "3"})
        with pytest.raises(BudgetExhausted):
            ledger.charge(61, matching="m", purpose="report", keep={"report": "4"})
        assert (ledger.spent(), ledger.kept("report"), ledger.kept("other")) == (40, "3", None)
    with opened(path) as ledger:
        assert ledger.kept("report") == "3"
        ledger.charge(0, matching="m", purpose="report", keep={"report": "5"})
        assert (ledger.spent(), ledger.kept("report")) == (40, "5")


def test_a_fact_that_is_pinned_stays_and_another_one_is_refused(path):
    with opened(path) as ledger:
        ledger.pin("partition", "1000 m")
        ledger.pin("partition", "1000 m")
    with opened(path) as ledger, pytest.raises(Refused, match="another partition") as refusal:
        ledger.pin("partition", "500 m")
    assert refusal.value.code == "partition"


def test_what_is_remembered_for_free_is_replaced_and_written_once(path):
    with opened(path) as ledger:
        ledger.keep({"open": "a request", "game": "one"})
        ledger.keep({"open": "a request"})
        assert ledger.verify() == 2
        ledger.keep({"open": ""})
        with opened(path) as other:
            assert (other.kept("open"), other.kept("game"), other.spent()) == ("", "one", 0)


def test_a_charge_is_refused_when_another_program_has_acted_meanwhile(path):
    with opened(path) as ledger, opened(path) as other:
        other.charge(1, matching="m", purpose="report", keep={"report": "3"})
        with pytest.raises(Refused, match="another program has acted") as refusal:
            ledger.charge(1, matching="m", purpose="report", keep={"report": "4"}, expected={"report": None})
        assert refusal.value.code == "kept"
        assert (ledger.spent(), ledger.kept("report")) == (1, "3")
        ledger.charge(1, matching="m", purpose="report", keep={"report": "4"}, expected={"report": "3"})
