"""Processes that die, and processes that compete, over one ledger; test_ledger.py runs it as a program.

It forks, which takes a millisecond where starting Python takes a hundred, and which a test runner with threads
must not do itself. It fails by an AssertionError and a status other than 0.
"""

import io
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from palmatch.device.ledger import BudgetExhausted, Ledger, device_clock

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


class Dying(io.FileIO):
    """A file whose writes are an instant at which to die: before, in the middle, and after."""

    def write(self, data: bytes) -> int:
        Instants.pass_by()
        super().write(data[: len(data) // 2])
        Instants.pass_by()
        super().write(data[len(data) // 2 :])
        Instants.pass_by()
        return len(data)


class Instants:
    """Counts down to the instant at which this process kills itself; every change of the disk is between two."""

    left = 0

    @classmethod
    def pass_by(cls) -> None:
        cls.left -= 1
        if cls.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    @classmethod
    def between(cls, function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*words: Any, **named: Any) -> Any:
            cls.pass_by()
            found = function(*words, **named)
            cls.pass_by()
            return found

        return watched


def act_until(folder: Path, instant: int) -> int:
    """Make or open the ledger and act twice, but for a kill at an instant."""
    device_clock()  # which remembers the start of the device, and reads no file again
    Instants.left = instant
    for name in ("fsync", "ftruncate", "link"):
        setattr(os, name, Instants.between(getattr(os, name)))
    Path.unlink = Instants.between(Path.unlink)
    Path.open = lambda path, mode, buffering: Dying(path, mode.replace("b", ""))
    os.fdopen = lambda number, mode, buffering: Dying(number, "w")
    acted = os.open(folder / "acted.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with open_ledger(folder) as ledger:
        for _ in range(2):
            receipt = ledger.charge(PRICE, matching="m", purpose="pick", keep={"report": "3"})
            os.write(acted, b"%d\n" % receipt.number)
    return 0


def at_every_write(folder: Path, _seed: int, _: int) -> None:
    """Die at each instant of making a ledger, of charging it, and of mending what a crash has cut off."""
    for torn in (False, True):
        for instant in range(1, 100):
            place = folder / f"{torn} {instant}"
            place.mkdir()
            if torn:
                open_ledger(place).close()
                with (place / "ledger.db").open("ab") as file:
                    file.write(b"0123456789abcdef cut off")
            [status] = statuses([start(partial(act_until, place, instant))])
            (place / "acted.log").touch()
            check(place)
            with open_ledger(place) as ledger:
                before = ledger.spent()
                ledger.charge(PRICE, matching="m", purpose="pick")
                assert ledger.spent() == before + PRICE
            check(place)
            if status == 0:
                break
            assert status == -signal.SIGKILL
        assert status == 0
        assert instant > 10, "it was not killed at every write"


if __name__ == "__main__":
    what = globals()[sys.argv[1]]
    what(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
