"""The page's player against a board that may lie, by a virtual clock: when its messages leave, and what it refuses.

bus.mjs and device.mjs are those that are served; packets, signatures and token are real.
"""

import json
import shutil
import subprocess
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any

import cbor2
import pytest

from palmatch.device.state import COPIES, ONCE, sending_times
from palmatch.live.keys import Opener, open_handover
from palmatch.live.topics import Topic
from palmatch.web.server import static_folder

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="node is not installed")

Games = Callable[..., list[Any]]
START = 8.0


@pytest.fixture
def play(tmp_path):
    """Play games, each with these settings; see board.mjs."""
    shutil.copytree(str(static_folder()), tmp_path / "static")
    (tmp_path / "device.mjs").write_text((files("palmatch.device") / "device.mjs").read_text())

    def games(*cases):
        (tmp_path / "cases.json").write_text(json.dumps(cases))
        board = Path(__file__).with_name("board.mjs")
        command = [str(NODE), str(board), str(tmp_path), str(tmp_path / "cases.json"), str(tmp_path / "results.json")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return list(json.loads((tmp_path / "results.json").read_text()))

    return games


def test_a_page_writes_cbor_as_every_other_party_does(tmp_path):
    """Canonical, to the byte: otherwise what it sends is refused."""
    random = Random(1)
    floats = [
        random.uniform(0, 1e6),
        random.random(),
        0.0,
        1.0,
        0.5,
        0.1,
        65504.0,
        65505.0,
        65536.0,
        2.0**-24,
        2.0**-25,
    ]
    floats += [float(random.randrange(2**24)) * 2.0 ** random.randint(-30, 0) for _ in range(2000)]
    wholes = [0, 23, 24, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**53]
    said = [{"sequence": whole, "offer": offer, "names": ["é", "b", "a" * 300]} for whole in wholes for offer in floats]
    (tmp_path / "said.json").write_text(json.dumps(said))
    script = f"""
    import {{ readFileSync }} from "node:fs";
    import {{ Float, readCbor, writeCbor }} from "{static_folder()}/cbor.mjs";
    for (const {{ offer, ...one }} of JSON.parse(readFileSync("{tmp_path}/said.json"))) {{
      const bytes = writeCbor({{ ...one, offer: new Float(offer), key: Uint8Array.of(1, 2) }});
      if (readCbor(bytes).offer !== offer) throw new Error(`${{offer}}`);
      console.log(Buffer.from(bytes).toString("hex"));
    }}"""
    done = subprocess.run([str(NODE), "--input-type=module", "-e", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    expected = [cbor2.dumps(one | {"key": b"\1\2"}, canonical=True).hex() for one in said]
    assert done.stdout.split() == expected


def times(game, kind):
    assert "error" not in game, game
    return [round(time, 6) for name, time, _ in game["sent"] if name == kind]


def report(**more):
    return {"protocol": "report", **more}


def bids(after, **more):
    """A game of bids whose bulletins come so many milliseconds after the start; the last one ends it."""
    return {"protocol": "bids", "bulletins": after, **more}


@pytest.mark.parametrize("slot", [2.0, 0.06])
def test_when_a_page_sends_does_not_depend_on_how_long_it_thought(play, slot):
    gap = [0, 1000, 2000]
    at_once, thinking, first, second = play(
        report(slot=slot),
        report(slot=slot, thinks={"open": 40, "table": 40}),
        bids(gap, slot=slot),
        bids(gap, slot=slot, thinks={"open": 40, "table": 40, "bulletin 0": 40, "bulletin 1": 40}),
    )
    for kind in ("join", "report"):
        assert times(at_once, kind) == times(thinking, kind)
    assert times(first, "bid") == times(second, "bid")
    # As a device in Python does.
    assert times(at_once, "join") == pytest.approx(sending_times(COPIES, 0.5, 0.0, 6.0, 0.0))
    assert times(at_once, "report") == pytest.approx(sending_times(COPIES, 0.5, START, slot, START))
    expected = [sending_times(ONCE, 0.5, START + after, slot, START + after)[0] for after in (0.0, 1.0)]
    assert times(first, "bid") == pytest.approx(expected)


def test_a_page_that_thinks_longer_than_its_time_is_late_by_whole_margins(play):
    # With an offset of a half a bid leaves after 0.8 s of a slot of 2 s, whose margin is 0.2 s.
    games = play(*(bids([0, 5000], thinks={"bulletin 0": spent}) for spent in (0, 810, 990, 1010)))
    assert [times(game, "bid") for game in games] == [[8.8], [9.0], [9.0], [9.2]]


def test_how_long_a_page_looks_through_a_table_does_not_count_as_thinking(play):
    # Tables come 2 s before the start.
    at_once, looking, longer = play(report(), report(checks=1900, thinks={"table": 40}), report(checks=2500))
    assert times(at_once, "report") == times(looking, "report")
    # A table that was looked through late leaves 1.5 s of the slot.
    assert times(longer, "report") == pytest.approx(sending_times(COPIES, 0.5, 8.5, 1.5, 8.5))


def test_a_page_reads_no_bulletin_before_its_answer_to_the_one_before_has_left(play):
    games = play(*(bids([0, 500, 9000], thinks={"bulletin 1": spent}) for spent in (0, 600)))
    assert times(games[0], "bid")[0] == times(games[1], "bid")[0] == 8.8


def test_when_a_page_ends_does_not_show_how_long_it_thought_about_the_last_bulletin(play):
    at_once, thinking = play(bids([0, 2000]), bids([0, 2000], thinks={"bulletin 1": 150}))
    assert round(at_once["ended"], 6) == round(thinking["ended"], 6) == 10.2


def test_a_page_refuses_slots_that_are_too_short_to_decide_in(play):
    for game in play(report(slot=0.049), bids([0, 1000], slot=0.001)):
        assert "slots are shorter than the 0.05 s" in game["error"]
        assert (game["sent"], game["spent"]) == ([], 0)


def test_a_report_leaves_in_its_slot_however_late_the_board_says_that_begins(play):
    """A timer of a browser that has to wait for 25 days or more ends at once."""
    days = 30 * 86_400.0
    [game] = play(report(start=int(1000 * days), open={"slots": 1}))
    assert times(game, "report") == pytest.approx(sending_times(COPIES, 0.5, days, 2.0, days))


@pytest.mark.parametrize(
    "field", ["start", "joins_close", "slot", "slots", "step", "growth", "slack", "classes", "issuer", "resources"]
)
def test_a_page_plays_no_game_whose_opening_has_no_number_where_one_should_be(play, field):
    """Compared with what is no number everything passes, and a timer of so many seconds ends at once."""
    for game in play(report(open={field: "6"}), report(open={field: None}), report(open={field: -1})):
        assert game["error"] == "Not a message open."
        assert (game["sent"], game["spent"]) == ([], 0)


def test_a_page_draws_no_report_where_the_roster_counts_others_than_its_members(play):
    for counts in ([0, 2], [1, 1], [1], [0, 1, 0]):
        [game] = play(report(lies={"count": {"counts": counts}}))
        assert "counts are not those of the list of members" in game["error"]
        assert game["spent"] == 0


def test_a_transcript_with_missing_prices_is_refused(play):
    [game] = play(report(lies={"transcript": {"resources": ["v1", "v2"]}}))
    assert "one price for each resource" in game["error"]


def test_a_page_that_meets_another_version_of_the_protocol_says_so(play):
    newer, older = play(report(version=3), report(version=1))
    assert "version 3" in newer["error"]
    assert "update this page: reload it" in newer["error"]
    assert "its sender has to update" in older["error"]


@pytest.mark.parametrize(
    ("certified", "mine"), [("position", "position"), ("none", "position"), ("position", "none"), ("none", "none")]
)
def test_a_page_gives_a_vehicle_its_place_only_if_certificate_and_owner_allow_it(play, certified, mine):
    opener = Opener.fresh()
    [game] = play(report(serves={"sealing": opener.public.hex(), "handover": certified}, mine=mine))
    assert "error" not in game, game
    tag, sealed = bytes.fromhex(game["tag"]), bytes.fromhex(game["sealed"])
    found = open_handover(opener, Topic("game", "handover", "v1"), tag, sealed)
    if (certified, mine) == ("position", "position"):
        assert (found, game["code"]) == ((40.7484, -73.9857), "")
    else:
        assert found == game["code"] != ""


@pytest.mark.parametrize(("heard", "copies"), [("signed", 1), ("forged", 3), (None, 3)])
def test_a_page_stops_sending_copies_when_the_board_has_signed_that_it_heard_it(play, heard, copies):
    [game] = play(report(heard=heard))
    assert len(times(game, "join")) == copies
