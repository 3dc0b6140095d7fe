"""A device in a game: what it refuses, when it charges, and that it never tells anything twice."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from palmatch.device.distribution import GRID
from palmatch.device.grid import Place, locate
from palmatch.device.ledger import Ledger, units_of
from palmatch.device.messages import VERSION, Partition
from palmatch.device.records import (
    Assigned,
    Bid,
    Bulletin,
    Count,
    Earlier,
    Handover,
    Join,
    Open,
    Report,
    ReportTable,
    Result,
    Roster,
)
from palmatch.device.state import BidMachine, Owner, ReportMachine
from palmatch.errors import InputError, Refused

from .games import ROOT, MemoryStore, shown

PARTITION = Partition(1000.0, 500.0, (41.0, -74.0))
PLACE = locate(PARTITION, 40.75, -73.99)
OWNER = Owner("a ride home", PLACE, PARTITION, PARTITION.spots, 1.0, "me")
HALF = GRID // 2
TABLE = ReportTable(
    game="g",
    region=PLACE.region,
    epsilon=1.0,
    resources=("a", "b"),
    listed=shown(("a", "b")),
    cell_of=tuple(spot % 2 for spot in range(PARTITION.spots)),
    chances=((HALF + HALF // 3, HALF - HALF // 3), (HALF - HALF // 3, HALF + HALF // 3)),
    values=((0.9, 0.2), (0.3, 0.8)),
    opening=(0.0, 0.0),
)
OPEN = Open(VERSION, "g", "report", PARTITION, (0.0, 1.0), ROOT, 0.0, 1.0, 100)
ROSTER = Roster("g", (Count(PLACE.region, 1.0, 2, "t1"), Count(PLACE.region, 0.0, 1, "t0")))


ME = Assigned("me", PLACE.region, 1.0, "t1", 0, "a")


class Recorder(MemoryStore):
    """A store that says in which order things happened."""

    def __init__(self, lifetime, log):
        super().__init__(lifetime)
        self.log = log

    def charge(self, units, **facts):
        super().charge(units, **facts)
        self.log.append("charged")


def draw_low(_step, _purpose):
    return 0


def started(kind=ReportMachine, owner=OWNER, store=None, draw=draw_low):
    return kind(owner, MemoryStore(units_of(10.0)) if store is None else store, draw=draw)


def told(machine, *records):
    return [send.message for record, digest in records for send in machine.receive(record, digest)]


def until_table(protocol="report", table=TABLE):
    return [(replace(OPEN, protocol=protocol), "o"), (ROSTER, "r"), (table, "t1")]


def test_a_device_joins_reports_once_and_hands_over():
    store = MemoryStore(units_of(10.0))
    machine = started(store=store)
    mine = 0  # the lowest draw falls on the first report
    line = Assigned("me", PLACE.region, 1.0, "t1", mine, "a")
    other = Assigned("you", PLACE.region, 1.0, "t1", 1, "b")
    result = Result("g", (line, other), (("a", 0.0), ("b", 0.0)))
    assert told(machine, *until_table(), (result, "x")) == [
        Join("g", PLACE.region, 1.0),
        Report("g", 0, "me", "t1", mine),
        Handover("g", "me", "a"),
    ]
    assert store.charges == [units_of(1.0)]


def charges_before_it_reports(kind):
    """Whether the charge is stored when the report leaves."""
    log: list[str] = []
    machine = started(kind, store=Recorder(units_of(10.0), log))
    for record, digest in until_table():
        log += [type(send.message).__name__ for send in machine.receive(record, digest)]
    return log == ["Join", "charged", "Report"]


class ChargesAfterwards(ReportMachine):
    """A planted bug: the report is handed out, and the charge is written when the next record comes."""

    late: tuple[Any, ...] = ()

    def _drawn(self, table, digest):
        store, self.store = self.store, MemoryStore(units_of(10.0))
        drawn = super()._drawn(table, digest)
        self.store, self.late = store, (units_of(self.epsilon), table.game)
        return drawn

    def receive(self, record, digest):
        if self.late:
            self.store.charge(self.late[0], matching=self.late[1], purpose="report")
        return super().receive(record, digest)


def test_a_report_leaves_only_after_its_charge_is_stored():
    assert charges_before_it_reports(ReportMachine)
    assert not charges_before_it_reports(ChargesAfterwards)


def test_a_charge_that_fails_lets_nothing_leave():
    class Broken(MemoryStore):
        def charge(self, units, **facts):  # noqa: ARG002
            raise OSError("no space left on device")

    machine = started(store=Broken(units_of(10.0)))
    told(machine, *until_table()[:2])
    with pytest.raises(OSError, match="no space"):
        machine.receive(TABLE, "t1")


def reports_of_restarts(kind, times=20):
    """What a device reports that is restarted again and again in one game, with fresh chance each time."""
    store, random = MemoryStore(units_of(100.0)), Random(1)
    found = set()
    for _ in range(times):
        machine = started(kind, store=store, draw=lambda _step, _purpose: random.randrange(GRID))
        found |= {message.report for message in told(machine, *until_table()) if isinstance(message, Report)}
    return found if len(store.charges) == 1 else {*found, -len(store.charges)}


class Careless:
    """A planted bug: a store that does not look whether another program has been faster."""

    def __init__(self, store):
        self.inner = store

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def charge(self, units, *, expected, **facts):
        assert expected
        self.inner.charge(units, **facts)


class DrawsAgain(ReportMachine):
    """A planted bug: what is kept of a request is forgotten at a restart."""

    def __init__(self, *args, **facts):
        super().__init__(*args, **facts)
        self._kept, self.store = None, Careless(self.store)


def test_a_report_is_drawn_and_charged_once_however_often_the_device_restarts():
    assert len(reports_of_restarts(ReportMachine)) == 1
    assert len(reports_of_restarts(DrawsAgain)) > 1


def reports_at_once(first, second):
    """What two programs of one owner report that have both begun before either of them draws."""
    chances = iter((0, GRID - 1))
    machines = [started(store=store, draw=lambda _step, _purpose: next(chances)) for store in (first, second)]
    for machine in machines:
        told(machine, *until_table()[:2])
    return {message.report for machine in machines for message in told(machine, (TABLE, "t1"))}


def test_two_programs_of_one_owner_draw_one_report_and_pay_for_it_once(tmp_path):
    facts: dict[str, Any] = {"agent": "alice", "lifetime": units_of(10.0)}
    with Ledger(tmp_path / "a", **facts) as first, Ledger(tmp_path / "a", **facts) as second:
        assert len(reports_at_once(first, second)) == 1
        assert first.spent() == units_of(1.0)
    with Ledger(tmp_path / "b", **facts) as first, Ledger(tmp_path / "b", **facts) as second:
        assert len(reports_at_once(Careless(first), Careless(second))) == 2
        assert first.spent() == units_of(2.0)


def test_a_restart_from_a_real_ledger_sends_the_same_report(tmp_path):
    found, random = set(), Random(2)
    for _ in range(5):
        with Ledger(tmp_path / "alice.ledger", agent="alice", lifetime=units_of(1.0)) as ledger:
            machine = started(store=ledger, draw=lambda _step, _purpose: random.randrange(GRID))
            messages = told(machine, *until_table())
            assert messages[0] == Join("g", PLACE.region, 1.0)
            found.add(messages[1])
            assert ledger.spent() == units_of(1.0)
    assert len(found) == 1


def test_an_agent_that_waits_sends_its_stored_report_in_the_next_game_and_pays_nothing():
    store = MemoryStore(units_of(1.0))
    first = told(started(store=store), *until_table())[-1]
    roster = replace(ROSTER, game="h", counts=(Count(PLACE.region, 1.0, 1, "t2"),))
    table = replace(TABLE, game="h", earlier=(Earlier("t1", ((0.5, 0.4), (0.1, 0.7))),))
    machine = started(store=store, draw=lambda _step, _purpose: GRID - 1)
    later = told(machine, (replace(OPEN, game="h"), "o"), (roster, "r"), (table, "t2"))
    assert later == [Join("h", PLACE.region, 1.0), replace(first, game="h")]
    assert machine.values == (0.5, 0.4)
    assert store.charges == [units_of(1.0)]


def test_a_new_wish_at_the_same_place_draws_anew_so_that_moving_does_not_show():
    store = MemoryStore(units_of(10.0))
    told(started(store=store), *until_table())
    told(started(owner=replace(OWNER, request="another ride"), store=store), *until_table())
    assert store.charges == [units_of(1.0)] * 2
    elsewhere = replace(OWNER, place=Place(PLACE.region, (PLACE.spot + 1) % PARTITION.spots))
    with pytest.raises(InputError, match="another place"):
        started(owner=elsewhere, store=store)


def test_a_device_without_budget_takes_part_with_nothing_or_leaves_as_its_owner_chose():
    store = MemoryStore(units_of(1.0) - 1)
    machine = started(store=store)
    assert told(machine, (OPEN, "o"), (ROSTER, "r"))[0] == Join("g", PLACE.region, 0.0)
    quiet = replace(TABLE, epsilon=0.0, chances=((GRID,), (GRID,)), values=((0.5, 0.5),))
    assert told(machine, (quiet, "t0")) == [Report("g", 0, "me", "t0", 0)]
    assert store.charges == []
    gone = started(owner=replace(OWNER, when_spent="leave"), store=store)
    assert told(gone, *until_table()) == []
    assert gone.left


@pytest.mark.parametrize(
    ("code", "records"),
    [
        ("version", [(replace(OPEN, version=VERSION + 1), "o")]),
        ("protocol", [(replace(OPEN, protocol="bids"), "o")]),
        ("partition", [(replace(OPEN, partition=replace(PARTITION, origin=(41.001, -74.0))), "o")]),
        ("partition", [(replace(OPEN, partition=replace(PARTITION, edge=999.0)), "o")]),
        ("partition", [(replace(OPEN, partition=replace(PARTITION, spacing=250.0)), "o")]),
        ("epsilon", [(replace(OPEN, classes=(2.0,)), "o")]),
        ("range", [(replace(OPEN, slack=float("nan")), "o")]),
        ("range", [(replace(OPEN, slack=0.02), "o")]),
        ("range", [(replace(OPEN, slot=0.049), "o")]),
        ("range", [(replace(OPEN, slot=float("nan")), "o")]),
        ("announcement", [(OPEN, "o"), (OPEN, "other")]),
        ("announcement", [(OPEN, "o"), (ROSTER, "r"), (ROSTER, "other")]),
        ("roster", [(OPEN, "o"), (replace(ROSTER, counts=ROSTER.counts[1:]), "r")]),
        ("roster", [(OPEN, "o"), (replace(ROSTER, counts=(*ROSTER.counts, ROSTER.counts[0])), "r")]),
        ("roster", [(OPEN, "o"), (TABLE, "t1")]),
        ("game", [(ROSTER, "r")]),
        ("game", [(OPEN, "o"), (replace(ROSTER, game="h"), "r")]),
        ("hash", [(OPEN, "o"), (ROSTER, "r"), (TABLE, "another")]),
        ("hash", [(OPEN, "o"), (ROSTER, "r"), (replace(TABLE, region="5,5"), "t1")]),
        ("ratio", [*until_table()[:2], (replace(TABLE, chances=((GRID, 0), (0, GRID))), "t1")]),
        ("result", [*until_table()[:2], (Result("g", (), ()), "x")]),
    ],
)
def test_a_board_with_false_statements_is_refused_before_anything_is_charged(code, records):
    store = MemoryStore(units_of(10.0))
    machine = started(store=store)
    with pytest.raises(Refused) as refusal:
        told(machine, *records)
    assert refusal.value.code == code
    assert store.charges == []


def test_another_partition_is_refused_for_good_also_by_a_trust_file_that_changed(tmp_path):
    with Ledger(tmp_path / "alice.ledger", agent="alice", lifetime=units_of(1.0)) as ledger:
        started(store=ledger)
    shifted = replace(PARTITION, origin=(41.0, -74.002))
    owner = replace(OWNER, partition=shifted, place=locate(shifted, 40.75, -73.99))
    with Ledger(tmp_path / "alice.ledger", agent="alice", lifetime=units_of(1.0)) as ledger:
        with pytest.raises(Refused, match="another partition"):
            started(owner=owner, store=ledger)
        assert ledger.spent() == 0


def test_a_device_whose_report_did_not_arrive_goes_without():
    store = MemoryStore(units_of(10.0))
    machine = started(store=store)
    without = Result("g", (Assigned("you", PLACE.region, 1.0, "t1", 0, "a"),), (("a", 0.0), ("b", 0.0)))
    assert not [message for message in told(machine, *until_table(), (without, "x")) if isinstance(message, Handover)]
    assert machine.done
    assert store.charges == [units_of(1.0)]


@pytest.mark.parametrize(
    ("code", "result"),
    [
        # The other resource would have been better at these prices: the device is being steered.
        ("steered", Result("g", (Assigned("me", PLACE.region, 1.0, "t1", 0, "b"),), (("a", 0.0), ("b", 0.0)))),
        ("price", Result("g", (Assigned("me", PLACE.region, 1.0, "t1", 0, "b"),), (("a", 0.9), ("b", 0.0)))),
        ("steered", Result("g", (Assigned("me", PLACE.region, 1.0, "t1", 0, None),), (("a", 0.0), ("b", 0.0)))),
        ("result", Result("g", (Assigned("me", PLACE.region, 1.0, "t1", 1, "b"),), (("a", 0.0), ("b", 0.0)))),
        ("price", Result("g", (Assigned("me", PLACE.region, 1.0, "t1", 0, "a"),), (("a", float("nan")), ("b", 0.0)))),
        ("price", Result("g", (Assigned("me", PLACE.region, 1.0, "t1", 0, "a"),), (("a", 0.0),))),
        # Given away twice.
        ("result", Result("g", (ME, replace(ME, tag="you")), (("a", 0.9), ("b", 0.0)))),
        # Among the lines of another region or class no price would be looked at.
        ("result", Result("g", (replace(ME, resource="b", region="9,9"),), (("a", 0.0), ("b", 0.0)))),
        ("result", Result("g", (replace(ME, resource="b", epsilon=0.0),), (("a", 0.0), ("b", 0.0)))),
        ("result", Result("g", (ME, replace(ME, resource="b", region="9,9")), (("a", 0.0), ("b", 0.0)))),
        # Two lines of another agent.
        ("result", Result("g", (ME, *[replace(ME, tag="you", resource=None)] * 2), (("a", 0.0), ("b", 0.0)))),
        (
            "roster",
            Result(
                "g",
                (*(Assigned(tag, PLACE.region, 1.0, "t1", 0, None) for tag in "xy"), ME),
                (("a", 0.9), ("b", 0.0)),
            ),
        ),
    ],
)
def test_a_result_that_steers_the_device_gets_no_position(code, result):
    machine = started()
    told(machine, *until_table())
    with pytest.raises(Refused) as refusal:
        machine.receive(result, "x")
    assert refusal.value.code == code


def bulletin(sequence, prices, **facts):
    previous = f"b{sequence - 1}" if sequence else ""
    record = Bulletin("g", PLACE.region, sequence, previous, facts.pop("holders", (None, None)), prices=prices, **facts)
    return record, f"b{sequence}"


def bidding():
    store = MemoryStore(units_of(10.0))
    machine = started(BidMachine, store=store)
    assert told(machine, *until_table("bids")) == [Join("g", PLACE.region, 1.0)]
    return machine, store


def test_a_device_bids_again_when_it_is_outbid_and_hands_over_what_it_holds():
    machine, store = bidding()
    (first,) = told(machine, bulletin(0, (0.0, 0.0)))
    assert first == Bid("g", 1, "me", "a", 0.0 + (0.9 - 0.2) + 0.03)
    assert told(machine, bulletin(1, (first.offer, 0.0), holders=("me", None))) == []
    (second,) = told(machine, bulletin(2, (0.8, 0.0), holders=("you", None)))
    assert second.resource == "b"
    last = bulletin(3, (0.8, second.offer), holders=("you", "me"), over=True)
    assert told(machine, last) == [Handover("g", "me", "b")]
    assert machine.done
    assert store.charges == [units_of(1.0)]


def test_a_bulletin_that_came_before_is_not_acted_on_again():
    machine, _ = bidding()
    first = bulletin(1, (0.0, 0.0))
    assert len(told(machine, first)) == 1
    assert told(machine, first, bulletin(0, (0.0, 0.0))) == []
    with pytest.raises(Refused, match="second bulletin"):
        machine.receive(first[0], "another")


@pytest.mark.parametrize(
    ("code", "later"),
    [
        ("chain", (replace(bulletin(2, (0.1, 0.1))[0], previous="elsewhere"), "b2")),
        ("price", bulletin(2, (0.0, 0.1))),
        ("price", bulletin(2, (float("nan"), 0.1))),
        ("price", bulletin(2, (-0.1, 0.1))),
        ("shape", bulletin(2, (0.1,))),
        ("holder", bulletin(2, (0.1, 0.2), holders=(None, "me"))),
        ("holder", bulletin(2, (0.5, 0.1), holders=("me", None))),
        ("holder", bulletin(2, (0.5, 0.1), holders=("me", "me"))),
        ("sequence", bulletin(2, (0.1, 0.1), call=3)),
    ],
)
def test_a_bulletin_that_does_not_follow_is_refused(code, later):
    machine, _ = bidding()
    told(machine, bulletin(1, (0.1, 0.1)))
    with pytest.raises(Refused) as refusal:
        machine.receive(*later)
    assert refusal.value.code == code


def test_after_a_restart_a_device_takes_only_what_it_may_have_bid():
    """Its report makes a worth 0.9 and b 0.2, and the step is 0.03: it never offered more than 0.23 for b."""
    again, _ = bidding()
    assert told(again, bulletin(4, (0.93, 0.0), holders=("me", None))) == []
    again, _ = bidding()
    assert told(again, bulletin(4, (0.5, None), holders=(None, "me"))) == []
    again, _ = bidding()
    with pytest.raises(Refused, match="did not bid for") as refusal:
        told(again, bulletin(4, (0.5, 0.24), holders=(None, "me")))
    assert refusal.value.code == "holder"


def test_nothing_after_the_report_depends_on_the_truth():
    """Two devices at places of different cells that drew the same report act alike, to the last message."""
    acts = []
    for spot in (0, 1):
        random = Random(3)
        machine = started(BidMachine, owner=replace(OWNER, place=Place(PLACE.region, spot)))
        sent = told(machine, *until_table("bids"))
        prices = [0.0, 0.0]
        for sequence in range(30):
            sent += told(machine, bulletin(sequence, tuple(prices)))
            prices = [price + random.random() * 0.05 for price in prices]
        acts.append(sent)
        assert machine.report == 0
    assert acts[0] == acts[1]


def sent_at(machine, records):
    """The kinds of what a machine sends; one offset is drawn for every record, and is that of what follows from it."""
    drawn: list[float] = []

    def offset():
        drawn.append((len(drawn) + 1) / 128)
        return drawn[-1]

    machine._offset, kinds = offset, []
    for number, (record, digest) in enumerate(records, 1):
        sends = machine.receive(record, digest)
        assert [send.offset for send in sends] == [number / 128] * len(sends)
        assert len(drawn) == number
        kinds += [type(send.message).__name__ for send in sends]
    return kinds


@pytest.mark.parametrize("spot", [0, 1])
@pytest.mark.parametrize("draw", [0, GRID - 1])
def test_when_a_message_leaves_does_not_depend_on_what_was_decided(spot, draw):
    """Whether the report is the cell of the place or not, and whether or not a message follows."""
    owner, report = replace(OWNER, place=Place(PLACE.region, spot)), int(draw > 0)
    assert TABLE.cell_of[:2] == (0, 1)
    line = replace(ME, report=report, resource="ab"[report])
    result = Result("g", (line,), (("a", 0.0), ("b", 0.0)))
    machine = started(owner=owner, draw=lambda *_: draw)
    assert sent_at(machine, [*until_table(), (result, "x")]) == ["Join", "Report", "Handover"]
    machine = started(BidMachine, owner=owner, draw=lambda *_: draw)
    wanted = (lambda mine, other: (other, mine)) if report else (lambda mine, other: (mine, other))
    won = bulletin(2, wanted(None, 5.0), holders=wanted("me", None), call=1, over=True)
    slots = [bulletin(0, (5.0, 5.0)), bulletin(1, wanted(0.0, 5.0), call=1), won]
    assert sent_at(machine, [*until_table("bids"), *slots]) == ["Join", "Bid", "Handover"]


@pytest.mark.parametrize("sequence", [101, 2**40])
def test_a_board_cannot_keep_a_device_busy_after_the_announced_end_of_a_game(sequence):
    machine = started(BidMachine)
    told(machine, *until_table("bids"))
    bulletin = Bulletin("g", PLACE.region, sequence, "", (None, None), call=sequence, prices=(0.0, 0.0))
    with pytest.raises(Refused, match="announced end"):
        machine.receive(bulletin, "b")
    last = replace(bulletin, sequence=100, call=100)
    assert isinstance(told(machine, (last, "b"))[0], Bid)
