"""A device in a game of `rounds` (PALMA): claims, what the bulletin shows of them, back-off.

State, draws and charge are written before every slot, so that a restart goes on with the same claim and draws nothing
again. As in `state`, records come in and messages go out.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import astuple, replace
from typing import Literal

from palmatch.device.agent import Agent, AgentState, Draw, system_draw
from palmatch.device.ledger import BudgetExhausted
from palmatch.device.prices import RoundsTable, budget_units, check_rounds_table
from palmatch.device.records import Bulletin, Claim, Handover, Message, Result
from palmatch.device.report import ReportTable
from palmatch.device.state import Machine, Owner, Store, system_offset
from palmatch.errors import Refused


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

    def _accept(self, record: ReportTable | RoundsTable, digest: str) -> tuple[Message, ...]:
        if not isinstance(record, RoundsTable):
            raise Refused("protocol", "Expected a table of rounds.")
        check_rounds_table(record, epsilon=self.epsilon, spots=self.owner.spots)
        self.table = record
        kept = self._resumed(digest)
        if kept is not None:
            self.slot, state = kept
            self.agent = self._agent(state)
            if state.held is not None:
                return self._handover(record)
        else:
            self.agent = self._agent(None)
            self._store(None, 1, digest)
        return self._claim()

    def _agent(self, state: AgentState | None, *, budget: int | None = None) -> Agent:
        assert self.table is not None
        own = self.table.utilities[self.owner.place.spot]
        units = budget_units(self.epsilon) if budget is None else budget
        tables, rules = self.table.region_tables(), self.table.rules()
        return Agent(tables, own, units, rules=rules, draw=self._draw, state=state)

    def _bulletin(self, record: Bulletin, digest: str) -> tuple[Message, ...]:
        self._in_game(record.game)
        if self.agent is None or self.table is None:
            raise Refused("hash", f"A bulletin of game {record.game} came before its table.")
        if self._last is not None and record.sequence == self._last[0].sequence and digest != self._last[1]:
            raise Refused("announcement", f"A second bulletin {record.sequence} of game {record.game}.")
        if record.sequence < self.slot or (self._last is not None and record.sequence <= self._last[0].sequence):
            return ()
        self._check_bulletin(record)
        before = self.agent.state
        self._observe(record)
        if self.agent.held is None and (record.over or all(tag is not None for tag in record.holders)):
            self.done = True
        self._store(before, record.sequence + 1, self._seen[RoundsTable], record)
        self._last = record, digest
        if self.agent.held is not None:
            return self._handover(self.table)
        return () if self.done else self._claim()

    def _handover(self, table: RoundsTable) -> tuple[Message, ...]:
        assert self.agent is not None
        assert self.agent.held is not None
        self.done = True
        return (Handover(table.game, self.owner.tag, table.resources[self.agent.held]),)

    def _check_bulletin(self, record: Bulletin) -> None:
        assert self.table is not None
        assert self.agent is not None
        resources = len(self.table.resources)
        if record.region != self.table.region or not len(record.holders) == len(record.attempted) == resources:
            raise Refused("shape", "The bulletin does not have one holder and one bit for each resource.")
        if (
            self._last is not None
            and record.sequence == self._last[0].sequence + 1
            and record.previous != self._last[1]
        ):
            raise Refused("chain", "The bulletin does not follow the one before.")
        mine = [place for place, tag in enumerate(record.holders) if tag == self.owner.tag]
        claimed = self.table.entries[self.agent.entry] if self.agent.attempting else None
        if mine and mine != [claimed]:
            raise Refused("holder", "The bulletin says that this device holds something that it did not claim.")

    def _observe(self, record: Bulletin) -> None:
        """Let the agent take note of a slot: what came of its claim, or what a look shows."""
        assert self.agent is not None
        agent, held = self.agent, {place for place, tag in enumerate(record.holders) if tag is not None}
        if not agent.attempting:
            resource = agent.decide(record.sequence, held).resource
            agent.saw(free=resource not in held and not record.attempted[resource])
        elif self.owner.tag in record.holders:
            agent.won()
        else:
            # Also after a claim or a bulletin that got lost: the agent does not hold it.
            agent.collided(record.sequence)

    def _store(self, before: AgentState | None, slot: int, digest: str, record: Bulletin | None = None) -> None:
        """Write what was decided for a slot, with its charge, before anything of it is sent."""
        assert self.agent is not None
        assert self.table is not None
        self.slot = slot
        spent = self.agent.spent - (0 if before is None else before.spent)
        try:
            self._write(spent, digest)
        except BudgetExhausted:
            # Another program has spent the budget: nothing was shown of what was decided, so it is forgotten, and from
            # now on the agent plays noise.
            if before is None or record is None:
                self.agent = self._agent(None, budget=0)
            else:
                self.agent.state = replace(before, exhausted=True)
                self._observe(record)
            self._write(0, digest)

    def _write(self, units: int, digest: str) -> None:
        assert self.agent is not None
        assert self.table is not None
        state = json.dumps([self.table.game, digest, self.slot, list(astuple(self.agent.state))])
        keep = {f"rounds {self.owner.request}": state}
        self.store.charge(units, matching=self.table.game, purpose="rounds", keep=keep)

    def _is_paid(self, game: str) -> bool:
        kept = self.store.kept(f"rounds {self.owner.request}")
        return kept is not None and json.loads(kept)[0] == game

    def _resumed(self, digest: str) -> tuple[int, AgentState] | None:
        assert self.table is not None
        kept = self.store.kept(f"rounds {self.owner.request}")
        if kept is None:
            return None
        game, table, slot, state = json.loads(kept)
        if game != self.table.game:
            return None
        if table != digest:
            raise Refused("announcement", f"A second table of game {game}.")
        return slot, AgentState(*state)

    def _claim(self) -> tuple[Message, ...]:
        assert self.agent is not None
        assert self.table is not None
        if self.done or not self.agent.attempting:
            return ()
        resource = self.table.resources[self.table.entries[self.agent.entry]]
        return (Claim(self.table.game, self.slot, self.owner.tag, resource),)

    def _result(self, record: Result) -> tuple[Message, ...]:
        raise Refused("protocol", f"Game {record.game} is played by rounds and has no result but its bulletins.")
