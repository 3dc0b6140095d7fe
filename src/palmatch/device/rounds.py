"""A device in a game of `rounds` (PALMA): claims, what the bulletin shows of them, back-off.

State, draws and charge are written before every slot, so that a restart goes on with the same claim and draws nothing
again. As in `state`, records come in and messages go out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import astuple, replace
from typing import Literal

from palmatch.device.agent import UNIT, Agent, AgentState, Draw, system_draw
from palmatch.device.charges import RoundsTable, budget_units, check_rounds_table
from palmatch.device.ledger import BudgetExhausted
from palmatch.device.records import Bulletin, Claim, Handover, Message, Result
from palmatch.device.report import ReportTable
from palmatch.device.state import Machine, Owner, Store, system_offset
from palmatch.device.units import base_of
from palmatch.errors import InputError, Refused


class RoundsMachine(Machine):
    """An agent of PALMA on its own device.

    A bulletin closes a slot. An agent that had claimed learns from it whether it holds the resource, or backs off by
    its own coin; an agent that looks reads it off the same bulletin. Either way the claim of the next slot is decided,
    and stored, before that slot begins.

    An agent that wants several resources plays once for each unit, each time with a share of its budget and draws of
    its own. Its units know of each other: none claims what another one claims in the same slot, or a seat of what the
    agent holds; to such a claim the answer is "taken", which follows from what every observer sees.
    """

    protocol: Literal["report", "bids", "rounds"] = "rounds"

    def __init__(
        self, owner: Owner, store: Store, *, draw: Draw = system_draw, offset: Callable[[], float] = system_offset
    ) -> None:
        super().__init__(owner, store, draw=draw, offset=offset)
        self.table: RoundsTable | None = None
        self.units: list[Agent] = []
        self.slot = 0
        self._bases: tuple[str, ...] = ()
        self._last: tuple[Bulletin, str] | None = None

    @property
    def spent(self) -> int:
        """How many units of ε all units of the agent have been charged."""
        return sum(unit.spent for unit in self.units)

    @property
    def actions(self) -> int:
        """How many of their actions were charged."""
        return sum(unit.actions for unit in self.units)

    def _check_table(self, record: ReportTable | RoundsTable) -> None:
        if not isinstance(record, RoundsTable):
            raise Refused("protocol", "Expected a table of rounds.")
        check_rounds_table(record, epsilon=self.epsilon, spots=self.owner.spots)
        record.region_tables()

    def _accept(self, record: ReportTable | RoundsTable, digest: str) -> tuple[Message, ...]:
        assert isinstance(record, RoundsTable)
        self.table, self._bases = record, tuple(map(base_of, record.resources))
        kept = self._resumed(digest)
        if kept is not None:
            self.slot, states = kept
            self.units = [self._unit(number, state) for number, state in enumerate(states)]
            if all(unit.held is not None for unit in self.units):
                return self._ended()
        else:
            self.units = [self._unit(number, None) for number in range(self.owner.demand)]
            self._store(None, 1, digest)
        return self._claims()

    def _unit(self, number: int, state: AgentState | None, *, budget: int | None = None) -> Agent:
        """Return one unit: its share of the budget is such that all shares are the budget."""
        assert self.table is not None
        own = self.table.utilities[self.owner.place.spot]
        share, rest = divmod(budget_units(self.epsilon) if budget is None else budget, self.owner.demand)
        tables, rules = self.table.region_tables(), self.table.rules()

        def draw(step: int, purpose: int) -> int:
            return self._draw(step, purpose + UNIT * number)

        return Agent(tables, own, share + (number < rest), rules=rules, draw=draw, state=state)

    def _bulletin(self, record: Bulletin, digest: str) -> tuple[Message, ...]:
        self._in_game(record.game)
        if not self.units or self.table is None:
            raise Refused("hash", f"A bulletin of game {record.game} came before its table.")
        if self._last is not None and record.sequence == self._last[0].sequence and digest != self._last[1]:
            raise Refused("announcement", f"A second bulletin {record.sequence} of game {record.game}.")
        if record.sequence < self.slot or (self._last is not None and record.sequence <= self._last[0].sequence):
            # After a restart the last bulletin may be known already, and no other one follows.
            return self._ended() if record.over and record.sequence == self.slot - 1 else ()
        self._check_bulletin(record)
        before = [unit.state for unit in self.units]
        self._observe(record)
        self._store(before, record.sequence + 1, self._seen[RoundsTable], record)
        self._last = record, digest
        closed = self._closed(record)
        hopeless = len(closed) == len(self.table.resources)
        if record.over or hopeless or all(unit.held is not None for unit in self.units):
            return self._ended()
        return self._claims()

    def _ended(self) -> tuple[Message, ...]:
        """Hand over to every resource that is held."""
        assert self.table is not None
        self.done = True
        held = [self.table.resources[unit.held] for unit in self.units if unit.held is not None]
        return tuple(Handover(self.table.game, self.owner.tag, resource) for resource in held)

    def _held_bases(self) -> set[str]:
        return {self._bases[unit.held] for unit in self.units if unit.held is not None}

    def _closed(self, record: Bulletin) -> set[int]:
        """Return what no unit can get any more: what is held, and the other seats of what the agent holds."""
        own = self._held_bases()
        return {
            place
            for place, (tag, base) in enumerate(zip(record.holders, self._bases, strict=True))
            if tag is not None or base in own
        }

    def _claimed(self) -> dict[int, Agent]:
        """Return which places are claimed in this slot, and by which unit: of one resource one seat, by the first."""
        assert self.table is not None
        taken, claimed = self._held_bases(), dict[int, Agent]()
        for unit in self.units:
            place = self.table.entries[unit.entry]
            if unit.held is None and unit.attempting and self._bases[place] not in taken:
                taken.add(self._bases[place])
                claimed[place] = unit
        return claimed

    def _check_bulletin(self, record: Bulletin) -> None:
        assert self.table is not None
        resources = len(self.table.resources)
        if record.region != self.table.region or not len(record.holders) == len(record.attempted) == resources:
            raise Refused("shape", "The bulletin does not have one holder and one bit for each resource.")
        self._check_horizon(record)
        if (
            self._last is not None
            and record.sequence == self._last[0].sequence + 1
            and record.previous != self._last[1]
        ):
            raise Refused("chain", "The bulletin does not follow the one before.")
        mine = {place for place, tag in enumerate(record.holders) if tag == self.owner.tag}
        held = {unit.held for unit in self.units if unit.held is not None}
        if not held <= mine or not mine <= held | self._claimed().keys():
            raise Refused("holder", "The bulletin says that this device holds something that it did not claim.")

    def _observe(self, record: Bulletin) -> None:
        """Let all units take note of a slot: what came of their claims, or what a look shows."""
        claimed = self._claimed()
        claims = {id(unit) for unit in claimed.values()}
        waiting = [unit for unit in self.units if unit.held is None]
        for place, unit in claimed.items():
            if record.holders[place] == self.owner.tag:
                unit.won()
        closed = self._closed(record)
        for unit in waiting:
            if not unit.attempting:
                resource = unit.decide(record.sequence, closed).resource
                unit.saw(free=resource not in closed and not record.attempted[resource])
            elif id(unit) not in claims:
                unit.saw(free=False)
            elif unit.held is None:
                # Also after a claim or a bulletin that got lost: the unit does not hold it.
                unit.collided(record.sequence)

    def _store(
        self, before: Sequence[AgentState] | None, slot: int, digest: str, record: Bulletin | None = None
    ) -> None:
        """Write what was decided for a slot, with its charge, before anything of it is sent."""
        self.slot = slot
        spent = self.spent - (0 if before is None else sum(state.spent for state in before))
        try:
            self._write(spent, digest)
        except BudgetExhausted:
            # Another program has spent the budget: nothing was shown of what was decided, so it is forgotten, and from
            # now on the agent plays noise.
            if before is None or record is None:
                self.units = [self._unit(number, None, budget=0) for number in range(self.owner.demand)]
            else:
                for unit, state in zip(self.units, before, strict=True):
                    unit.state = replace(state, exhausted=True)
                self._observe(record)
            self._write(0, digest)

    def _write(self, units: int, digest: str) -> None:
        assert self.table is not None
        states = [list(astuple(unit.state)) for unit in self.units]
        keep = {f"rounds {self.owner.request}": json.dumps([self.table.game, digest, self.slot, *states])}
        self.store.charge(units, matching=self.table.game, purpose="rounds", keep=keep)

    def _is_paid(self, game: str) -> bool:
        kept = self.store.kept(f"rounds {self.owner.request}")
        return kept is not None and json.loads(kept)[0] == game

    def _resumed(self, digest: str) -> tuple[int, list[AgentState]] | None:
        assert self.table is not None
        kept = self.store.kept(f"rounds {self.owner.request}")
        if kept is None:
            return None
        game, table, slot, *states = json.loads(kept)
        if game != self.table.game:
            return None
        if table != digest:
            raise Refused("announcement", f"A second table of game {game}.")
        if len(states) != self.owner.demand:
            raise InputError(f"Request {self.owner.request!r} was made with another demand; make a new request.")
        return slot, [AgentState(*state) for state in states]

    def _claims(self) -> tuple[Message, ...]:
        assert self.table is not None
        names, game, tag = self.table.resources, self.table.game, self.owner.tag
        return tuple(Claim(game, self.slot, tag, names[place]) for place in self._claimed())

    def _result(self, record: Result) -> tuple[Message, ...]:
        raise Refused("protocol", f"Game {record.game} is played by rounds and has no result but its bulletins.")
