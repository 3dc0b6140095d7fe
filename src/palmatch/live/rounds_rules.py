"""`rounds`: PALMA's tables with pure accounts, and what claims come to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from palmatch.device.units import base_of
from palmatch.live import messages as m
from palmatch.live.method_rules import MethodRules
from palmatch.live.packing import pack
from palmatch.live.terms import Crowd, Outcome, Regional, Said
from palmatch.methods.palma import palma_game
from palmatch.rounds.game import region_tables


class RoundsRules(MethodRules):
    """`palma` with pure accounts, whose charges a device can check: a lone claim of something free holds it."""

    def tables(self, crowd: Crowd) -> Mapping[tuple[str, int], m.Table]:
        """Return PALMA's tables."""
        self.holder: dict[str, bytes] = {}
        # The resources that each agent holds a seat of, and how many those want that want more than one.
        self.held: dict[bytes, set[str]] = {}
        self.demands = crowd.demands
        self.listed: dict[str, tuple[str, ...]] = {}
        self.region_of = {tag: region for (region, _), tags in crowd.members.items() for tag in tags}
        return super().tables(crowd)

    def _tables(self, first: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], m.Table]:
        self.game = palma_game(self.workspace, replace(self.settings, accountant="pure"))
        index = self.workspace.problem.region_index
        tables = {place: self._rounds(place, int(index[agent])) for place, agent in first.items()}
        self.listed = {region: table.resources for (region, _), table in tables.items()}
        return tables

    def _rounds(self, place: tuple[str, int], region: int) -> m.Table:
        tables, rules = region_tables(self.game.public, self.game.allowance, region), self.game.rules
        known = self.workspace.regions[region]
        rows = np.array(tables.resources, dtype=np.int64)
        columns = {resource: column for column, resource in enumerate(known.resources.tolist())}
        below = np.split(np.array(tables.selection_below), list(tables.offsets)[1:-1])
        content = m.RoundsTable(
            utilities=pack("d", known.utilities[:, [columns[row] for row in rows.tolist()]].ravel().tolist()),
            offsets=pack("I", tables.offsets),
            entries=pack("I", tables.entries),
            selection=pack("Q", np.concatenate([np.diff(part, prepend=0) for part in below]).tolist()),
            backoff=pack("Q", tables.backoff),
            truth_selection=rules.truth_selection,
            truth_backoff=rules.truth_backoff,
            gamma=rules.gamma,
            spent_backoff=rules.spent_backoff,
            selection_units=pack("Q", tables.selection_units),
            backoff_units=pack("Q", tables.backoff_units),
        )
        return self._table(place, rows, content)

    def close(self, slot: int, said: Sequence[Said]) -> tuple[Mapping[str, Regional], bool]:  # noqa: ARG002 - all alike
        """Let lone claims hold; it is over when every agent holds what it wants or has nothing left to hope for."""
        claims, claimed = dict[str, list[bytes]](), dict[bytes, set[str]]()
        for one in said:
            own = claimed.setdefault(one.tag, set())
            if one.resource in self.listed[self.region_of[one.tag]] and self._may_claim(one.tag, one.resource, own):
                own.add(base_of(one.resource))
                claims.setdefault(one.resource, []).append(one.tag)
        for name, tags in claims.items():
            if len(tags) == 1 and name not in self.holder:
                self.holder[name] = tags[0]
                self.held.setdefault(tags[0], set()).add(base_of(name))
        free = {region: [name for name in names if name not in self.holder] for region, names in self.listed.items()}
        # Only for those that want more: all agents with all resources would take longer than a slot.
        waiting = [tag for tag in self.region_of if self._wants_more(tag, self.held.get(tag, set()))]
        over = not any(self._may_claim(tag, name, set()) for tag in waiting for name in free[self.region_of[tag]])
        return {region: self._regional(names, claims) for region, names in self.listed.items()}, over

    def _may_claim(self, tag: bytes, name: str, claimed: set[str]) -> bool:
        """Tell whether an agent wants more than it holds and claims in this slot, and no seat of any of those."""
        own = self.held.get(tag, set()) | claimed
        return self._wants_more(tag, own) and base_of(name) not in own

    def _wants_more(self, tag: bytes, own: set[str]) -> bool:
        return len(own) < self.demands.get(tag, 1)

    def _regional(self, names: Sequence[str], claims: Mapping[str, Sequence[bytes]]) -> Regional:
        return Regional([self.holder.get(name) for name in names], attempted=[name in claims for name in names])

    def outcome(self) -> Outcome:
        """Return what is held."""
        return Outcome(dict(self.holder), {}, {})
