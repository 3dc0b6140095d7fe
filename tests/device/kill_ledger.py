"""Processes that die, and processes that compete, over one ledger; test_ledger.py runs it as a program.

It forks, which takes a millisecond where starting Python takes a hundred, and which a test runner with threads
must not do itself. It fails by an AssertionError and a status other than 0.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

from palmatch.device.ledger import BudgetExhausted, Ledger, LedgerError

LIFETIME = 200
PRICE = 3
LONGEST = 0.012  # seconds that a child may live: opening takes about two, a charge about one thousandth
KILLS_PER_LEDGER = 10  # so that the making of a ledger is cut off as well, and that budgets run out


def start(work: Callable[[], int]) -> int:
    """Fork a child that does the work and leaves with the status it returns; give its process id."""
    sys.stderr.flush()
    child = os.fork()
    if child:
        return child
    try:
        status = work()
    except BaseException:
        traceback.print_exc()
        status = 255
    sys.stderr.flush()
    os._exit(status)


def statuses(children: list[int]) -> list[int]:
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def open_ledger(folder: Path, *, lifetime: int = LIFETIME) -> Ledger:
    return Ledger(folder / "ledger.db", agent="ada", lifetime=lifetime, timeout_seconds=60)


def act_until_killed(folder: Path, up: int) -> int:
    """Charge, then act: the act is the number of its charge in a file that is only appended to."""
    acted = os.open(folder / "acted.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(up, b"up")
    with open_ledger(folder) as ledger:
        try:
            while True:
                receipt = ledger.charge(PRICE, matching="m", purpose="pick")
                os.write(acted, b"%d\n" % receipt.number)
        except BudgetExhausted:
            time.sleep(60)  # the killer comes within milliseconds, unless it has died itself
    return 1


def start_acting(folder: Path) -> int:
    reading, writing = os.pipe()
    child = start(partial(act_until_killed, folder, writing))
    os.close(writing)
    assert os.read(reading, 2) == b"up"
    os.close(reading)
    return child


def check(folder: Path) -> int:
    """Every act has a charge of its own, the ledger is whole and the limit holds; give the number of acts."""
    acts = (folder / "acted.log").read_text().split()  # read before the ledger: a sibling may still be acting
    with open_ledger(folder) as ledger:  # which verifies it
        charges = {entry.number: entry.units for entry in ledger.entries() if entry.kind == "charged"}
        assert len(set(acts)) == len(acts), "an act was done twice on one charge"
        assert {int(act) for act in acts} <= charges.keys(), "an act has no charge"
        assert sum(charges.values()) <= ledger.spent() <= LIFETIME
    return len(acts)


def kill_again_and_again(folder: Path, *, kills: int, seed: int, together: int) -> int:
    random = Random(seed)
    for done in range(0, kills, together):
        place = folder / str(done // KILLS_PER_LEDGER)
        place.mkdir(exist_ok=True, parents=True)
        children = [start_acting(place) for _ in range(together)]
        try:
            while children:
                time.sleep(random.uniform(0, LONGEST))
                os.kill(children[0], signal.SIGKILL)
                assert statuses([children.pop(0)]) == [-signal.SIGKILL], "a child ended by itself"
                check(place)
        finally:
            for child in children:
                os.kill(child, signal.SIGKILL)
    return 0


def kill(folder: Path, kills: int, seed: int) -> None:
    """Spread the kills over four lanes: in two a child is alone, in two it shares its ledger with another."""
    each = partial(kill_again_and_again, kills=kills // 4)
    lanes = [start(partial(each, folder / str(lane), seed=seed + lane, together=1 + lane % 2)) for lane in range(4)]
    assert statuses(lanes) == [0] * 4
    acts = sum(check(log.parent) for log in folder.glob("*/*/acted.log"))
    assert acts > 0, "no child ever came to act, so nothing was tested"
    sys.stdout.write(f"{acts}\n")


def contend(folder: Path, closed: int, gate: int) -> int:
    os.close(gate)
    with open_ledger(folder) as ledger:
        os.read(closed, 1)
        try:
            ledger.charge(PRICE, matching="m", purpose="last")
        except BudgetExhausted as refusal:
            return 1 if (refusal.spent, refusal.remaining) == (LIFETIME, 0) else 2
    return 0


def race(folder: Path, rounds: int, most: int) -> None:
    """Two, three, up to `most` processes want the last three units at the same moment: one gets them."""
    for number in range(rounds):
        place = folder / str(number)
        place.mkdir()
        with open_ledger(place) as ledger:
            ledger.charge(LIFETIME - PRICE, matching="m", purpose="before")
        closed, gate = os.pipe()
        contenders = 2 + number % (most - 1)
        children = [start(partial(contend, place, closed, gate)) for _ in range(contenders)]
        time.sleep(0.002)
        os.close(closed)
        os.close(gate)
        assert sorted(statuses(children)) == [0] + [1] * (contenders - 1)


def share(folder: Path, lifetime: int, contenders: int) -> None:
    """All make the ledger and spend it unit by unit: together they get the lifetime, no more and no less."""

    def spend() -> int:
        spent = 0
        with open_ledger(folder, lifetime=lifetime) as ledger:
            try:
                while True:
                    spent += ledger.charge(1, matching="m", purpose="pick").units
            except BudgetExhausted:
                return spent

    assert sum(statuses([start(spend) for _ in range(contenders)])) == lifetime


def crash(folder: Path) -> int:
    """Die in the middle of a charge, when the journal is complete and some of the file's pages are written.

    A long ledger is then torn: some of its pages are new, and others old. A short one is still whole.
    """
    with open_ledger(folder, lifetime=10**6) as ledger:
        ledger._file._run("PRAGMA cache_size = 1")
        with ledger._file.transaction():
            append(ledger, 400)
            os.kill(os.getpid(), signal.SIGKILL)
    return 1


def append(ledger: Ledger, rows: int) -> None:
    tip = ledger._file.tip()
    for _ in range(rows):
        tip = ledger._file.append(tip, kind="charged", units=0)


def fill(folder: Path) -> None:
    """Make a ledger so long that a transaction can leave some of its pages new and others old."""
    with open_ledger(folder, lifetime=10**6) as ledger, ledger._file.transaction():
        append(ledger, 400)


def die(folder: Path) -> None:
    assert statuses([start(partial(crash, folder))]) == [-signal.SIGKILL]
    # SQLite heeds a journal whose header is not zero: it is written when the journal is on the disk.
    assert (folder / "ledger.db-journal").read_bytes()[:1] == b"\xd9", "no hot journal was left: nothing is tested"


def pay(folder: Path, charges: int) -> int:
    """Charge this often; give what the ledger then says is spent."""
    with open_ledger(folder, lifetime=10**6) as ledger:
        for _ in range(charges):
            ledger.charge(1, matching="m", purpose="pick")
        return ledger.spent()


def is_refused(folder: Path) -> bool:
    try:
        open_ledger(folder, lifetime=10**6).close()
    except LedgerError:
        return True
    return False


def move(here: Path, there: Path) -> None:
    (here / "ledger.db").rename(there / "ledger.db")


def come_back(folder: Path, before: int, after: int) -> None:
    """Crash; the one file is moved, charged there and moved back beside the journal of the crash."""
    here, there = two_folders(folder)
    pay(here, before)
    die(here)
    move(here, there)
    assert pay(there, 300) == before + 300
    move(there, here)
    assert pay(here, after) == before + 300 + after
    with open_ledger(here, lifetime=10**6) as ledger:
        assert ledger.verify() == 1 + before + 300 + after


def torn(folder: Path, charges: int, _: int) -> None:
    here, there = two_folders(folder)
    fill(here)
    pay(here, charges)
    die(here)
    move(here, there)
    assert is_refused(there)
    move(there, here)
    moved = folder / "moved"
    here.rename(moved)  # the whole folder: file, journal and home stay together
    assert pay(moved, 1) == charges + 1


def twice(folder: Path, before: int, between: int) -> None:
    """Crash here, charge there, crash there as well, and bring the torn file back to the first journal."""
    here, there = two_folders(folder)
    pay(here, before)
    die(here)
    move(here, there)
    fill(there)
    pay(there, between)
    die(there)
    move(there, here)
    assert is_refused(here)
    move(here, there)
    assert pay(there, 1) == before + between + 1


def wander(folder: Path, journeys: int, seed: int) -> None:
    """Charges, crashes and moves at random, of the one file or of all three: no receipt is ever lost."""
    random = Random(seed)
    refused = 0
    for journey in range(journeys):
        here, there = two_folders(folder / str(journey))
        if journey % 2:
            fill(here)
        receipts = 0
        for _ in range(16):
            what = random.choice(["pay", "pay", "fill", "crash", "crash and move", "move", "move", "move all"])
            usable = not is_refused(here)
            if what == "pay" and usable:
                receipts += 1
                assert pay(here, 1) == receipts
            elif what == "fill" and usable and journey % 2:
                fill(here)
            elif what.startswith("crash") and usable:
                die(here)
            if what.endswith("move"):
                move(here, there)
                here, there = there, here
            elif what == "move all":
                for file in here.glob("ledger.db*"):
                    file.rename(there / file.name)
                here, there = there, here
            refused += not usable
        assert is_refused(here) or pay(here, 0) == receipts
    assert refused < 8 * journeys, "it was refused nearly always, so little was tested"


def two_folders(folder: Path) -> tuple[Path, Path]:
    for name in ("here", "there"):
        (folder / name).mkdir(parents=True)
    return folder / "here", folder / "there"


if __name__ == "__main__":
    what = globals()[sys.argv[1]]
    what(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
