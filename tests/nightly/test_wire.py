"""All traffic of thousands of live games tells no more of a device than its ε, in memory and over real brokers."""

import pytest

from live.conftest import MOSQUITTO
from live.test_wire import LateSubscription, Pondering, TooSlow, Unpadded, attacked
from live.wire import AuditSetup, attack_wire
from palmatch.device import messages as m
from palmatch.device import state
from palmatch.live.session import DeviceSession


class HastyTruth(DeviceSession):
    """A planted bug: a true report leaves at a tenth of its offset; neither alone tells anything more."""

    def _later(self, topic, message, offset, *more, **named):
        machine = self.machine
        if isinstance(message, m.Report) and machine.report == machine.table.cell_of[machine.owner.place.spot]:
            offset *= 0.1
        super()._later(topic, message, offset, *more, **named)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("protocol", ["report", "bids", "rounds"])
def test_all_traffic_of_thousands_of_games_tells_no_more_than_epsilon(protocol):
    attack = attack_wire(AuditSetup(protocol, epsilon=1.0, seed=3), games=5000)
    assert not attack.broken, attack.verdict


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("network", ["hub", "mqtt"])
@pytest.mark.parametrize("protocol", ["report", "bids", "rounds"])
def test_all_traffic_of_games_over_a_broker_tells_no_more_than_epsilon(protocol, network):
    if network == "mqtt" and MOSQUITTO is None:
        pytest.skip("Mosquitto is not installed (apt-get install mosquitto)")
    attack = attack_wire(AuditSetup(protocol, epsilon=1.0), games=150, network=network)
    assert not attack.broken, attack.verdict


@pytest.mark.timeout(3600)
def test_a_report_whose_time_tells_whether_it_is_true_is_caught():
    setup = AuditSetup("report", epsilon=0.25, seed=3, player=HastyTruth)
    attack = attack_wire(setup, games=800)
    assert attack.broken, attack.verdict


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("protocol", "player"),
    [
        ("rounds", LateSubscription),
        *((protocol, player) for protocol in ("report", "bids", "rounds") for player in (TooSlow, Unpadded)),
    ],
)
def test_a_planted_leak_is_caught_in_every_protocol(protocol, player):
    attack = attacked(protocol, player, games=160)
    assert attack.broken, attack.verdict


@pytest.mark.timeout(3600)
def test_a_claim_that_leaves_as_soon_as_it_is_decided_is_caught(monkeypatch):
    monkeypatch.setattr(state, "MARGIN", 0.0)
    attack = attacked("rounds", Pondering, games=160)
    assert attack.broken, attack.verdict
