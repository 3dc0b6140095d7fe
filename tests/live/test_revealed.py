"""What a device says that it has revealed: never less than it has."""

import pytest

from live.examples import GRID, PLACES
from palmatch.device.grid import locate
from palmatch.device.ledger import units_of
from palmatch.device.state import Owner, ReportMachine
from palmatch.guarantee import SENTENCES
from palmatch.live.session import GameResult, revealed
from palmatch.studies.live_game import on_the_wire
from palmatch.web.games import MemoryStore


def machine():
    owner = Owner("ride", locate(GRID, *PLACES[0]), GRID, GRID.spots, 1.0, "00")
    return ReportMachine(owner, MemoryStore(units_of(1.0)))


def test_a_device_that_left_has_shown_its_region_to_the_broker_and_its_name_to_the_issuer():
    leaving = machine()
    leaving.left = True
    said = revealed(leaving, GRID.edge, GameResult("g"), charged=False)
    assert "issuer" in said
    assert leaving.owner.place.region in said


@pytest.mark.parametrize("charged", [False, True])
def test_the_resource_that_serves_a_device_is_said_to_have_its_position_or_its_code(charged):
    assert "position" not in revealed(machine(), GRID.edge, GameResult("g"), charged=charged)
    with_position, with_code = GameResult("g", "v1"), GameResult("g", "v1", code="ABCD-EFGH")
    assert revealed(machine(), GRID.edge, with_position, charged=charged).endswith("To v1 alone: its position.")
    told = "To v1 alone: a reservation code, not its position."
    assert revealed(machine(), GRID.edge, with_code, charged=charged).endswith(told)


def test_what_an_owner_does_with_what_it_got_is_not_covered():
    assert any("cancels" in sentence for sentence in on_the_wire("report", 1.0, seeded=False).not_covered)
    assert any("`rounds` further games" in sentence for sentence in SENTENCES["live"]["not_covered"])
