"""A small method for tests of the board: one table for each region, and the best matching of the reports' values."""

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

from palmatch.device import messages as m
from palmatch.device.messages import pack, unpack
from palmatch.live.rules import Accepted, Crowd, Outcome, RegionUpdate

NAMES = ("v1", "v2", "v3", "v4")
REGIONS = ("a", "b")
REPORTS = 3


class TableRules:
    """Reports are worth fixed values; a centre matches them."""

    def __init__(self) -> None:
        self.crowd: Crowd | None = None
        self.reports: dict[bytes, tuple[bytes, int]] = {}
        self.matched: dict[str, bytes] = {}

    def has_region(self, region: str) -> bool:
        return region in REGIONS

    def tables(self, crowd: Crowd) -> Mapping[tuple[str, int], m.Table]:
        self.crowd = crowd
        return {place: self._table(crowd, *place) for place in crowd.members}

    def _table(self, crowd: Crowd, region: str, number: int) -> m.Table:
        values = np.random.default_rng(REGIONS.index(region)).uniform(0.1, 1, (REPORTS, len(NAMES)))
        chances = [[2**51] * 2 + [2**52]] * 2
        channel = m.Channel(
            cell_of=pack("I", [0, 1]),
            chances=pack("Q", [chance for row in chances for chance in row]),
            values=pack("d", values.ravel()),
            opening=pack("d", [0.0] * len(NAMES)),
        )
        return m.Table(
            region=region,
            epsilon_class=number,
            epsilon=crowd.classes[number],
            roster=crowd.roster,
            resources=NAMES,
            channel=channel,
        )

    def begin(self) -> Mapping[str, RegionUpdate]:
        return {}

    def close(self, slot: int, said: Sequence[Accepted]) -> tuple[Mapping[str, RegionUpdate], bool]:
        assert slot == 0
        assert self.crowd is not None
        for one in said:
            assert isinstance(one.message, m.Report)
            self.reports[one.tag] = (one.message.channel, one.message.report)
        region_of = {tag: place for place, tags in self.crowd.members.items() for tag in tags}
        tags = sorted(self.reports)
        rows = []
        for tag in tags:
            table = self._table(self.crowd, *region_of[tag])
            values = np.array(unpack("d", table.channel.values)).reshape(REPORTS, -1)
            rows.append(values[self.reports[tag][1]])
        if rows:
            for row, column in zip(*linear_sum_assignment(np.array(rows), maximize=True), strict=True):
                self.matched[NAMES[column]] = tags[row]
        regional = RegionUpdate([self.matched.get(name) for name in NAMES], prices=[0.0] * len(NAMES))
        return dict.fromkeys({place[0] for place in self.crowd.members}, regional), True

    def outcome(self) -> Outcome:
        return Outcome(self.matched, dict.fromkeys(NAMES, 0.0), self.reports)
