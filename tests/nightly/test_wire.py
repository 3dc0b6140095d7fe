"""All traffic of thousands of live games tells no more of a device than its ε, in memory and over real brokers."""

from __future__ import annotations

from typing import Any

import pytest

from live.conftest import MOSQUITTO
from live.wire import AuditSetup, attack_wire
from palmatch.device import messages as m
from palmatch.live.session import DeviceSession
from palmatch.live.topics import Topic


class HastyTruth(DeviceSession):
    """A planted bug: a true report leaves at a tenth of its offset; neither alone tells anything more."""

    def _later(self, topic: Topic, message: m.Message, offset: float, *more: Any, **named: Any) -> None:
        machine = self.machine
        if isinstance(message, m.Report) and machine.report == machine.table.cell_of[machine.owner.place.spot]:
            offset *= 0.1
        super()._later(topic, message, offset, *more, **named)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("protocol", ["report", "bids", "rounds"])
def test_all_traffic_of_thousands_of_games_tells_no_more_than_epsilon(protocol: Any) -> None:
    attack = attack_wire(AuditSetup(protocol, epsilon=1.0, seed=3), games=5000)
    assert not attack.broken, attack.verdict


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("network", ["hub", "mqtt"])
@pytest.mark.parametrize("protocol", ["report", "bids", "rounds"])
def test_all_traffic_of_games_over_a_broker_tells_no_more_than_epsilon(protocol: Any, network: Any) -> None:
    if network == "mqtt" and MOSQUITTO is None:
        pytest.skip("Mosquitto is not installed (apt-get install mosquitto)")
    attack = attack_wire(AuditSetup(protocol, epsilon=1.0), games=150, network=network)
    assert not attack.broken, attack.verdict


@pytest.mark.timeout(3600)
def test_a_report_whose_time_tells_whether_it_is_true_is_caught() -> None:
    setup = AuditSetup("report", epsilon=0.25, seed=3, player=HastyTruth)
    attack = attack_wire(setup, games=800)
    assert attack.broken, attack.verdict
