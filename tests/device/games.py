"""Games at random for a device: honest ones, and ones in which the board lies in one place."""

from collections.abc import Callable
from dataclasses import asdict, fields, replace
from functools import partial
from math import exp, inf
from random import Random
from typing import Any

from palmatch.device import messages as m
from palmatch.device.bid import best_bid
from palmatch.device.distribution import GRID
from palmatch.device.grid import Place
from palmatch.device.ledger import BudgetExhausted, units_of
from palmatch.device.messages import VERSION, Partition, pack
from palmatch.device.records import Assigned, Bulletin, Count, Earlier, Listed, Open, ReportTable, Result, Roster
from palmatch.device.state import BidMachine, Machine, Owner, ReportMachine
from palmatch.errors import InputError, Refused
from palmatch.live.listing import ListTree
from palmatch.live.records import listed_record

# One list for all games of these tests, in which their tables show their resources.
_NAMES = ("a", "b", "c", *(f"r{number}" for number in range(1000)))
_NAMES += tuple(f"{base}#{seat}" for base in ("a", "v", "r0", "r1", "r2", "r3") for seat in (1, 2))
_AT = [degree for number in range(len(_NAMES)) for degree in (40.0 + number % 30 / 100, -74.0 + number // 30 / 100)]
TREE = ListTree(m.ResourceList(names=_NAMES, at=pack("d", _AT)))
ROOT = TREE.root.hex()

KINDS = {Open: "open", Roster: "roster", ReportTable: "table", Bulletin: "bulletin", Result: "result"}


def shown(resources: tuple[str, ...]) -> Listed | None:
    """The proof that resources are on the list."""
    return listed_record(TREE.proof(resources))


class MemoryStore:
    """A ledger without a file: what `device.mjs` calls a memory ledger."""

    def __init__(self, lifetime: int) -> None:
        self.lifetime, self.spent = lifetime, 0
        self.values: dict[str, str] = {}
        self.charges: list[int] = []

    def charge(self, units: int, *, matching: str, purpose: str, keep: Any = None, expected: Any = None) -> None:  # noqa: ARG002
        if any(self.values.get(name) != value for name, value in (expected or {}).items()):
            raise Refused("kept", "charged already")
        if self.spent + units > self.lifetime:
            raise BudgetExhausted(
                "lifetime", spent=self.spent, requested=units, remaining=max(0, self.lifetime - self.spent)
            )
        self.spent += units
        self.charges.append(units)
        self.values |= keep or {}

    def kept(self, name: str) -> str | None:
        return self.values.get(name)

    def pin(self, name: str, value: str) -> None:
        if self.values.setdefault(name, value) != value:
            raise Refused(name, "pinned")

    def remaining(self) -> int:
        return max(0, self.lifetime - self.spent)


def chances_at_random(random: Random, cells: int, reports: int, epsilon: float) -> tuple[tuple[int, ...], ...]:
    """Chances that keep ε: a common column of weights, each cell's within half of ε of it before it is scaled."""
    base = [random.random() + 0.05 for _ in range(reports)]
    rows = []
    for _ in range(cells):
        row = [weight * exp(random.uniform(-0.24, 0.24) * epsilon) for weight in base]
        whole = [int(weight / sum(row) * GRID * (1 - 1e-12)) for weight in row]
        whole[-1] += GRID - sum(whole)
        rows.append(tuple(whole))
    return tuple(rows)


def table_at_random(random: Random, game: str, place: Place, spots: int, epsilon: float) -> ReportTable:
    resources = random.randint(1, 7)
    seats = random.random() < 0.3
    reports = random.randint(1, 5) if epsilon > 0 else 1
    cells = random.randint(1, 4) if epsilon > 0 else 1
    values = tuple(
        tuple(random.choice([random.random() + 1e-9, 0.5, 0.25]) % 1 + 1e-9 for _ in range(resources))
        for _ in range(reports)
    )
    names = tuple(f"r{number // 2}#{number % 2 + 1}" if seats else f"r{number}" for number in range(resources))
    return ReportTable(
        game=game,
        region=place.region,
        epsilon=epsilon,
        resources=names,
        listed=shown(names),
        cell_of=tuple(random.randrange(cells) for _ in range(spots)),
        chances=chances_at_random(random, cells, reports, epsilon) if reports > 1 else ((GRID,),) * cells,
        values=values,
        opening=tuple(random.choice([0.0, random.random()]) for _ in range(resources)),
    )


def spoiled(random: Random, table: ReportTable) -> ReportTable:
    """A table with one thing wrong, or with something that only looks wrong."""
    rows = [list(row) for row in table.chances]
    row, column = random.randrange(len(rows)), random.randrange(len(rows[0]))
    other = random.randrange(len(rows[0]))
    kind = random.randrange(9)
    if kind == 0:
        # Above 2^53 a double holds even numbers only: what a browser then checks is what it then draws from.
        rows[row][column] += random.choice([2, -1, 2**20])
    elif kind == 1 and other != column:
        moved = random.choice([1, rows[row][column] // 100, rows[row][column]])
        rows[row][column] -= moved
        rows[row][other] += moved
    elif kind == 2:
        rows[row] = rows[row][:-1]
    elif kind == 3:
        return replace(table, values=(*table.values, table.values[0]))
    elif kind == 4:
        return replace(
            table, values=tuple(tuple(random.choice([0.0, 1.5, -0.5, v]) for v in vs) for vs in table.values)
        )
    elif kind == 5:
        return replace(table, opening=(*table.opening[:-1], -1.0))
    elif kind == 6:
        return replace(table, cell_of=(*table.cell_of[:-1], len(rows)))
    elif kind == 7:
        return replace(table, cell_of=table.cell_of[:-1])
    else:
        return replace(table, epsilon=table.epsilon * random.choice([0.99, 1.01]))
    return replace(table, chances=tuple(map(tuple, rows)))


def unlisted(random: Random, table: ReportTable) -> ReportTable:
    """A table whose proof is broken in one place, or tells the same in another way."""
    proof = table.listed
    order = random.sample(range(len(proof.places)), len(proof.places))
    places = list(proof.places)
    places[0] = random.choice([0, -1, proof.size, places[-1], places[0] ^ 1])
    hashes = list(proof.hashes)
    random.shuffle(hashes)
    broken = [
        None,
        replace(proof, size=random.choice([0, 1, proof.size - 1, proof.size + 1, 2 * proof.size, 2**32])),
        replace(proof, places=tuple(places)),
        replace(proof, places=proof.places[1:]),
        replace(proof, places=tuple(proof.places[row] for row in order)),
        replace(proof, positions=random.choice([proof.positions[::-1], proof.positions[2:], "x" * 64])),
        replace(proof, hashes=proof.hashes[: random.randrange(len(proof.hashes))]),
        replace(proof, hashes=(*proof.hashes, proof.hashes[0])),
        replace(proof, hashes=tuple(hashes)),
        replace(proof, hashes=tuple(random.choice([one, one[:-2], one.upper(), "x" * 64]) for one in proof.hashes)),
    ]
    if len(table.resources) > 1 and random.random() < 0.1:
        return forged_leaf(table)
    if random.random() < 0.2:
        return replace(table, resources=tuple(random.choice([name, "r999", "é"]) for name in table.resources))
    return replace(table, listed=random.choice(broken))


def forged_leaf(table: ReportTable) -> ReportTable:
    """A table in which a forged resource claims the leaf of another one; the proof of all others is good."""
    others = table.resources[1:]
    proof = shown(others)
    places = (proof.places[0], *proof.places)
    return replace(table, resources=("0 forged", *others), listed=replace(proof, places=places))


def play(
    machine: type[Machine], owner: Owner, store: Any, draw: int, records: list[Any], restarts: list[int]
) -> list[dict[str, Any]]:
    """Give a machine these records, with a restart before some of them; say what came of each."""

    offsets: list[float] = []

    def offset() -> float:
        offsets.append((len(offsets) + 1) / 1024)
        return offsets[-1]

    def start() -> tuple[Machine | None, dict[str, Any]]:
        made = outcome(lambda: machine(owner, store, draw=lambda _step, _purpose: draw, offset=offset))
        return made.pop("value", None), made

    alive, failed = start()
    told = []
    for number, (record, digest) in enumerate(records):
        if number in restarts:
            alive, failed = start()
        told.append(failed if alive is None else outcome(partial(received, alive, record, digest)))
        assert all(send["offset"] == offsets[-1] for send in told[-1].get("value", ()))
    return told


def received(machine: Machine, record: Any, digest: str) -> list[Any]:
    return as_json(machine.receive(record, digest))


def outcome(work: Callable[[], Any]) -> dict[str, Any]:
    try:
        return {"value": work()}
    except Refused as refusal:
        return {"refused": refusal.code}
    except BudgetExhausted:
        return {"exhausted": True}
    except InputError:
        return {"input": True}


def as_json(sends: Any) -> list[Any]:
    return [
        {"message": {"kind": type(send.message).__name__.lower()} | asdict(send.message), "offset": send.offset}
        for send in sends
    ]


def fields_of(record: Any) -> dict[str, Any]:
    """A record's fields as they are; as `default` of an encoder also those of the records in it."""
    return {field.name: getattr(record, field.name) for field in fields(record)}


def record_json(record: Any) -> dict[str, Any]:
    """What stands for a record in a case; nothing of it is copied, since tables are long."""
    return {"kind": KINDS[type(record)]} | fields_of(record)


def game_at_random(random: Random, number: int) -> tuple[type[Machine], Owner, int, int, list[Any], list[int]]:
    """A machine, its owner and budget, a draw, and the records of a game, in which something may be wrong."""
    bids = random.random() < 0.6
    partition = Partition(1000.0, random.choice([100.0, 500.0, 300.0]), (41.0, -74.0))
    epsilon = random.choice([0.5, 1.0, 3.0])
    place = Place("0,-28", random.randrange(partition.spots))
    when_spent = random.choice(["zero", "leave"])
    owner = Owner(f"wish {number}", place, partition, partition.spots, epsilon, "me", when_spent)
    lifetime = random.choice([units_of(epsilon), units_of(10.0), units_of(epsilon) - 1])
    paid = lifetime >= units_of(epsilon)
    taken = epsilon if paid else 0.0
    game = f"game {number}"
    partition_told = partition if random.random() < 0.95 else replace(partition, origin=(41.5, -74.0))
    opened = Open(
        version=VERSION if random.random() < 0.98 else VERSION - 1,
        game=game,
        protocol="bids" if bids else "report",
        partition=partition_told,
        classes=(0.0, 0.5, 1.0, 3.0) if random.random() < 0.95 else (0.25,),
        resources=ROOT,
        start=0.0,
        slot=1.0 if number % 50 else 0.049,
        slots=100,
        step=random.choice([0.03, 0.045]),
        growth=random.choice([0.0, 0.0, 0.0008, random.random() / 100, -0.001 if random.random() < 0.1 else 0.0]),
    )
    table = table_at_random(random, game, place, partition.spots, taken)
    if random.random() < 0.15:
        table = replace(table, earlier=(Earlier("an earlier table", table.values),))
    announced = "table" if random.random() < 0.95 else "another"
    if random.random() < 0.25:
        table = spoiled(random, table)
    if random.random() < 0.05:
        table = unlisted(random, table)
    count = Count(place.region, taken, random.choice([1, 4, 4]), announced)
    roster = Roster(game, (count, Count("1,1", taken, 3, "x")))
    records: list[Any] = [(opened, "open"), (roster, "roster"), (table, "table")]
    draw = random.randrange(GRID)
    if bids:
        records += bulletins_at_random(random, owner, lifetime, draw, opened, records)
    else:
        records.append((result_at_random(random, game, place, taken, table, draw), "result"))
    for _ in range(random.choice([0, 0, 1, 2])):
        again = random.choice(records)
        records.insert(random.randrange(len(records) + 1), (again[0], random.choice([again[1], "other"])))
    if random.random() < 0.05:
        random.shuffle(records)
    restarts = sorted({random.randrange(len(records)) for _ in range(random.choice([0, 0, 1]))})
    return BidMachine if bids else ReportMachine, owner, lifetime, draw, records, restarts


def bulletins_at_random(
    random: Random, owner: Owner, lifetime: int, draw: int, opened: Open, records: list[Any]
) -> list[Any]:
    """Bulletins in which the device wins and loses, prices rise, and calls follow each other; some are wrong."""
    machine = BidMachine(owner, MemoryStore(lifetime), draw=lambda _step, _purpose: draw)
    table: ReportTable = records[-1][0]
    prices: list[float | None] = list(table.opening)
    holders: list[str | None] = [None] * len(table.resources)
    made, call, bids, before = [], 0, [], ""
    for record, digest in records:
        outcome(lambda record=record, digest=digest: machine.receive(record, digest))
    sequence = 0
    for _ in range(random.randint(1, 12)):
        for bid in bids:
            if random.random() < 0.5:
                place = table.resources.index(bid.resource)
                holders[place], prices[place] = "me", bid.offer
        for place in range(len(prices)):
            if random.random() < 0.3 and prices[place] is not None:
                prices[place] = prices[place] + random.random() * 0.2
                holders[place] = "other"
        if random.random() < 0.1 and sequence > call:
            call += 1
            prices = [None if tag is not None else 0.0 for tag in holders]
        shown, held = list(prices), list(holders)
        wrong = random.random()
        if wrong < 0.03:
            shown[0] = -1.0
        elif wrong < 0.06:
            held[random.randrange(len(held))] = "me"
        elif wrong < 0.09:
            shown[-1] = 0.0
        elif wrong < 0.11:
            shown = shown[:-1]
        previous = before if random.random() < 0.97 else "elsewhere"
        bulletin = Bulletin(
            opened.game, table.region, sequence, previous, tuple(held), call, tuple(shown), over=random.random() < 0.1
        )
        made.append((bulletin, f"bulletin {sequence}"))
        sent = outcome(lambda bulletin=bulletin, sequence=sequence: machine.receive(bulletin, f"bulletin {sequence}"))
        bids = [send.message for send in sent.get("value", ()) if hasattr(send.message, "offer")]
        before = f"bulletin {sequence}"
        sequence += random.choice([1, 1, 1, 2])
    return made


def result_at_random(
    random: Random,
    game: str,
    place: Place,
    epsilon: float,
    table: ReportTable,
    draw: int,
) -> Result:
    """What an auction of a few agents ends in, with prices that support it; now and then something is wrong."""
    channel = "table"
    row = (
        table.chances[table.cell_of[place.spot] % len(table.chances)]
        if place.spot < len(table.cell_of)
        else table.chances[0]
    )
    mine = next((n for n in range(len(row)) if draw < sum(row[: n + 1])), 0)
    reports = [mine if epsilon > 0 else 0, *(random.randrange(len(table.values)) for _ in range(random.randint(0, 3)))]
    tags = ["me", *(f"tag {n}" for n in range(1, len(reports)))]
    holder, prices = auction(table, reports)
    got = {n: table.resources[r] for r, n in holder.items()}
    lines = [
        Assigned(tag, place.region, epsilon, channel, report, got.get(n))
        for n, (tag, report) in enumerate(zip(tags, reports, strict=True))
    ]
    priced = [(resource, price) for resource, price in zip(table.resources, prices, strict=True)]
    wrong = random.random()
    if wrong < 0.08:
        lines[0] = replace(lines[0], resource=random.choice(table.resources))
    elif wrong < 0.12:
        lines[0] = replace(lines[0], report=lines[0].report + 1)
    elif wrong < 0.15:
        priced = priced[:-1]
    elif wrong < 0.18:
        lines = lines[1:]
    elif wrong < 0.24:
        lines.append(replace(random.choice(lines), resource=random.choice([None, *table.resources])))
    elif wrong < 0.27:
        lines = [replace(lines[0], **random.choice([{"region": "1,1"}, {"epsilon": epsilon + 1.0}])), *lines[1:]]
    elif wrong < 0.30:
        place_wrong = random.randrange(len(priced))
        priced[place_wrong] = (priced[place_wrong][0], priced[place_wrong][1] + 0.1)
    return Result(game, tuple(lines), tuple(priced))


def auction(table: ReportTable, reports: list[int]) -> tuple[dict[int, int], list[float]]:
    """Let agents with these reports bid with a tiny step until all of them hold what they want or give up."""
    count = len(table.resources)
    prices, holder = [0.0] * count, {}
    free = list(range(len(reports)))
    # Agents with one report outbid each other by the step for ever: a device cannot tell how often they did.
    for _ in range(400):
        if not free:
            break
        agent = free.pop()
        values = table.values[reports[agent]] if len(table.values[reports[agent]]) == count else (0.5,) * count
        place, offer = best_bid(values, range(count), prices, 0, count, 1e-10)
        if place >= 0:
            if place in holder:
                free.append(holder[place])
            holder[place], prices[place] = agent, offer
    return holder, prices


def finite(prices: list[float | None]) -> list[float]:
    return [inf if price is None else price for price in prices]
