"""A device in a game of `rounds` (PALMA): claims, what the bulletin shows of them, back-off.

State, draws and charge are written before every slot, so that a restart goes on with the same claim and draws nothing
again. They are written only if the state is still the one that they follow: of two programs one plays. As in `state`,
records come in and messages go out.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import astuple, replace
from itertools import accumulate, chain, pairwise
from math import floor
from typing import Literal

from palmatch.device.agent import Agent, AgentState, Draw, RegionTables, Rules, system_draw
from palmatch.device.checks import check_rounds_table
from palmatch.device.ledger import UNIT_BITS, BudgetExhausted
from palmatch.device.records import (
    Bulletin,
    Claim,
    Handover,
    Message,
    ReportTable,
    Result,
    RoundsTable,
    once_in_game,
)
from palmatch.device.state import Machine, Owner, Store, system_offset
from palmatch.errors import Refused

# As in the batch: what floating-point costs may be off by is taken from a budget.
_SLACK = 1e-9


def budget_units(epsilon: float) -> int:
    """Return how many units a budget is worth: never more than ε."""
    return max(floor(epsilon * (1 - _SLACK) / 2.0**-UNIT_BITS), 0)


@once_in_game
def region_tables(table: RoundsTable) -> RegionTables:
    """Return a table as agents play by it, resources numbered by their place in it; agents of one process share it."""
    below = chain.from_iterable(accumulate(table.selection[start:stop]) for start, stop in pairwise(table.offsets))
    return RegionTables(
        resources=range(len(table.resources)),
        offsets=table.offsets,
        entries=table.entries,
        selection_below=tuple(below),
        backoff=table.backoff,
        first_units=table.selection_units[0],
        selection_units=table.selection_units,
        backoff_units=table.backoff_units,
    )


def rules_of(table: RoundsTable) -> Rules:
    """Return the public numbers of a game."""
    return Rules(table.truth_selection, table.truth_backoff, table.gamma, table.spent_backoff)


class RoundsMachine(Machine):
    """An agent of PALMA on its own device.

    A bulletin closes a slot. An agent that had claimed learns from it whether it holds the resource, or backs off by
    its own coin; an agent that looks reads it off the same bulletin. Either way the claim of the next slot is decided,
    and stored, before that slot begins.
    """

    protocol: Literal["report", "bids", "rounds"] = "rounds"

    def __init__(
        self, owner: Owner, store: Store, *, draw: Draw = system_draw, offset: Callable[[], float] = system_offset
    ) -> None:
        super().__init__(owner, store, draw=draw, offset=offset)
        self.table: RoundsTable | None = None
        self.agent: Agent | None = None
        self.slot = 0
        self._last: tuple[Bulletin, str] | None = None
        # What the ledger remembers of this game, as far as this program knows.
        self._stored: str | None = None

    def _check_table(self, record: ReportTable | RoundsTable) -> None:
        if not isinstance(record, RoundsTable):
            raise Refused("protocol", "Expected a table of rounds.")
        check_rounds_table(record, epsilon=self.epsilon, spots=self.owner.spots)
        region_tables(record)

    def _accept(self, record: ReportTable | RoundsTable, digest: str) -> tuple[Message, ...]:
        assert isinstance(record, RoundsTable)
        self.table = record
        kept = self._resumed(digest)
        if kept is not None:
            self.slot, state = kept
            self.agent = self._agent(budget_units(self.epsilon), state)
            if self.agent.held is not None:
                return self._ended()
        else:
            self.agent = self._agent(budget_units(self.epsilon))
            self._store(None, 1, digest)
        return self._claims()

    def _agent(self, budget: int, state: AgentState | None = None) -> Agent:
        assert self.table is not None
        own, tables = self.table.utilities[self.owner.place.spot], region_tables(self.table)
        return Agent(tables, own, budget, rules=rules_of(self.table), draw=self._draw, state=state)

    def _bulletin(self, record: Bulletin, digest: str) -> tuple[Message, ...]:
        self._in_game(record.game)
        if self.agent is None or self.table is None:
            raise Refused("hash", f"A bulletin of game {record.game} came before its table.")
        if self._last is not None and record.sequence == self._last[0].sequence and digest != self._last[1]:
            raise Refused("announcement", f"A second bulletin {record.sequence} of game {record.game}.")
        if record.sequence < self.slot or (self._last is not None and record.sequence <= self._last[0].sequence):
            # After a restart the last bulletin may be known already, and no other one follows.
            return self._ended() if record.over and record.sequence == self.slot - 1 else ()
        self._check_bulletin(record)
        before = self.agent.state
        self._observe(self.agent, record)
        self._store(before, record.sequence + 1, self._seen[RoundsTable], record)
        self._last = record, digest
        if record.over or None not in record.holders or self.agent.held is not None:
            return self._ended()
        return self._claims()

    def _ended(self) -> tuple[Message, ...]:
        """Hand over to the resource that is held."""
        assert self.table is not None
        self.done = True
        if self._held is None:
            return ()
        return (Handover(self.table.game, self.owner.tag, self.table.resources[self._held]),)

    @property
    def _held(self) -> int | None:
        return None if self.agent is None else self.agent.held

    def _claimed(self) -> int | None:
        """Return the place that is claimed in this slot."""
        assert self.table is not None
        assert self.agent is not None
        claims = self.agent.held is None and self.agent.attempting
        return self.table.entries[self.agent.entry] if claims else None

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
        held = self._held
        if (held is not None and mine != {held}) or not mine <= {held, self._claimed()}:
            raise Refused("holder", "The bulletin says that this device holds something that it did not claim.")

    def _observe(self, agent: Agent, record: Bulletin) -> None:
        """Take note of a slot: what came of a claim, or what a look shows."""
        if agent.held is not None:
            return
        claimed = self._claimed()
        if claimed is None:
            closed = {place for place, tag in enumerate(record.holders) if tag is not None}
            resource = agent.decide(record.sequence, closed).resource
            agent.saw(free=resource not in closed and not record.attempted[resource])
        elif record.holders[claimed] == self.owner.tag:
            agent.won()
        else:
            # Also after a claim or a bulletin that got lost: the agent does not hold it.
            agent.collided(record.sequence)

    def _store(self, before: AgentState | None, slot: int, digest: str, record: Bulletin | None = None) -> None:
        """Write what was decided for a slot, with its charge, before anything of it is sent."""
        assert self.agent is not None
        self.slot = slot
        try:
            self._write(self.agent.spent - (0 if before is None else before.spent), digest)
        except BudgetExhausted:
            # Another program has spent the budget: nothing was shown of what was decided, so it is forgotten, and from
            # now on the agent plays noise.
            if before is None or record is None:
                self.agent = self._agent(budget=0)
            else:
                self.agent.state = replace(before, exhausted=True)
                self._observe(self.agent, record)
            self._write(0, digest)

    def _write(self, units: int, digest: str) -> None:
        assert self.table is not None
        assert self.agent is not None
        name, value = self._name(self.table.game), json.dumps([digest, self.slot, astuple(self.agent.state)])
        # What is not written must not be built upon: whatever fails, this program has left.
        self.left = True
        self.store.charge(
            units,
            matching=self.table.game,
            purpose="rounds",
            keep={name: value},
            expected={name: self._stored},
        )
        self.left, self._stored = False, value

    def _name(self, game: str) -> str:
        return f"rounds {json.dumps([game, self.owner.request])}"

    def _is_paid(self, game: str) -> bool:
        return self.store.kept(self._name(game)) is not None

    def _resumed(self, digest: str) -> tuple[int, AgentState] | None:
        assert self.table is not None
        self._stored = self.store.kept(self._name(self.table.game))
        if self._stored is None:
            return None
        table, slot, state = json.loads(self._stored)
        if table != digest:
            raise Refused("announcement", f"A second table of game {self.table.game}.")
        return slot, AgentState(*state)

    def _claims(self) -> tuple[Message, ...]:
        assert self.table is not None
        if (place := self._claimed()) is None:
            return ()
        return (Claim(self.table.game, self.slot, self.owner.tag, self.table.resources[place]),)

    def _result(self, record: Result) -> tuple[Message, ...]:
        raise Refused("protocol", f"Game {record.game} is played by rounds and has no result but its bulletins.")
