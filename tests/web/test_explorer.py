"""The explorer in a real browser: what a visitor does, sees and takes away. No console error, no outside request."""

import asyncio
import csv
import io
import json
import os
import shutil
import subprocess
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from palmatch.domains.mobility import Points
from palmatch.errors import InputError
from palmatch.live.transport.hub import Hub
from palmatch.web.games import LiveGames
from palmatch.web.scenes import Choice, Scenes, Source
from palmatch.web.server import static_folder

# A quiet hour: few agents, so that a game is there at once.
NIGHT = "#hour=4&edge=2000"
SHARED = Path(os.environ.get("PALMATCH_SHARED_DATA", Path(__file__).resolve().parents[2] / "../shared/data"))
TRIPS = SHARED / "tlc_yellow_2016-01_head.csv"
PHONE = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"}


def figures(page):
    return str(page.inner_text("#tables"))


def test_a_visitor_watches_a_game_round_by_round(visit):
    page = visit.open(NIGHT)
    assert "round 0 of" in page.inner_text("#round"), "a game begins at its beginning"
    page.click("#step")
    assert "round 1 of" in page.inner_text("#round")
    assert page.locator("#maps canvas").get_attribute("aria-label").startswith("Map for once:")
    before = page.locator("#maps canvas").evaluate("canvas => canvas.toDataURL()")
    page.click("#play")
    page.locator("#round", has_text="the result").wait_for()
    assert page.locator("#maps canvas").evaluate("canvas => canvas.toDataURL()") != before
    page.click("#back")
    assert "of" in page.inner_text("#round")


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_rounds_in_which_nothing_changes_are_skipped():
    """In rounds 2 and 3 the second agent looks again at what the first one holds; in round 4 it gets another one."""
    script = f"""
    import {{ Game }} from "{static_folder() / "game.mjs"}";
    const seen = {{ step: [1, 1, 2, 3, 4], agent: [0, 1, 1, 1, 1], resource: [0, 0, 0, 0, 1] }};
    const steps = {{ ...seen, outcome: [0, 4, 4, 4, 0] }};
    const game = new Game({{ holder: new Int32Array([0, 1]), rows: 5, offer: [], ...steps }}, 2);
    console.log(JSON.stringify([game.changes, game.round]));
    """
    ran = subprocess.run(["node", "--input-type=module", "-e", script], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == [[1, 4], 0]


@pytest.mark.parametrize("visit", [{"viewport": {"width": 1280, "height": 900}}], indirect=True)
def test_the_bar_of_the_rounds_is_in_sight(visit):
    page = visit.open(NIGHT)
    box = page.locator("#player").bounding_box()
    assert box["y"] >= 0
    assert box["y"] + box["height"] <= 900
    # One cannot look at a round without the map beside it.
    assert page.locator("#maps canvas").bounding_box()["y"] < 450


def test_settings_move_the_game_and_the_address_tells_them(visit):
    page = visit.open(NIGHT)
    first = figures(page)
    page.locator("#epsilon").evaluate("s => { s.value = 2; s.dispatchEvent(new Event('change')); }")
    page.locator("#tables", has_text="ε = 7.4").wait_for()
    assert figures(page) != first
    page.select_option("#method", "hungarian-region")
    page.locator("#tables", has_text="Nothing is learnt").wait_for()
    page.select_option("#against", "alma")
    page.locator("#maps canvas").nth(1).wait_for()
    assert "method=hungarian-region" in page.url
    assert "against=alma" in page.url
    seen = figures(page)
    page.reload()
    visit.ready()
    page.locator("#maps canvas").nth(1).wait_for()
    assert figures(page) == seen


def test_a_picture_and_the_data_can_be_taken_away(visit, tmp_path):
    page = visit.open(NIGHT)
    with page.expect_download() as download:
        page.click("#save-png")
    download.value.save_as(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    with page.expect_download() as download:
        page.click("#save-csv")
    download.value.save_as(tmp_path / "data.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "data.csv").read_text())))
    assert f"{len(rows)} agents" in page.inner_text("#status")
    held = [row["vehicle"] for row in rows if row["vehicle"]]
    assert len(held) == len(set(held))


def test_loss_against_epsilon_is_drawn_point_by_point_as_it_is_computed(visit):
    page = visit.open(NIGHT + "&seed=3")
    page.locator("#chart svg[role=img]").wait_for(timeout=120_000)
    page.locator("#frontier-note", has_text="out of reach of every method").wait_for(timeout=300_000)
    assert {"limit", "once", "published", "hungarian-region"} <= set(page.inner_text("#chart").split())
    assert "…" not in page.inner_text("#chart")


def test_a_crowd_is_drawn_round_by_round(visit):
    page = visit.open("#agents=3000&method=noise&round=-1")
    assert "Computed for scenes of at most" in page.inner_text("#frontier-note")
    seen = set()
    for _ in range(3):
        seen.add(page.locator("#maps canvas").evaluate("canvas => canvas.toDataURL()"))
        page.click("#back")
    assert len(seen) == 3


def test_a_half_minute_of_taxi_records_is_a_scene():
    if not TRIPS.exists():
        pytest.skip("the taxi records are not ours to ship")
    source = Source.of_trips(TRIPS, None)
    scenes, choice = Scenes(source), Choice(method="hungarian-region")
    assert scenes.play(choice)[0]["agents"] == len(scenes.map(choice)["agents"]) > 10
    with pytest.raises(InputError, match="--at"):
        Source.of_trips(TRIPS, datetime(2015, 1, 1))


@pytest.mark.parametrize("visit", [{}, PHONE], indirect=True, ids=["wide", "phone"])
def test_the_page_is_readable_on_a_phone_and_on_a_large_screen(visit, tmp_path):
    page = visit.open(NIGHT)
    wide = page.viewport_size["width"]
    assert page.evaluate("() => document.documentElement.scrollWidth") <= wide
    for button in page.locator("button").all():
        assert button.bounding_box()["height"] >= 40
    page.screenshot(path=tmp_path / "page.png", full_page=True)


@pytest.mark.parametrize("visit", [{"bypass_csp": True}, PHONE | {"bypass_csp": True}], indirect=True)
def test_no_serious_finding_of_axe(visit):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    page = visit.open(NIGHT + "&against=noise")
    found = axe.Axe().run(page).response["violations"]
    serious = [(rule["id"], rule["nodes"][0]["html"]) for rule in found if rule["impact"] in ("serious", "critical")]
    assert serious == []


def test_the_keyboard_alone_is_enough(visit):
    page = visit.open(NIGHT)
    page.focus("#scrub")
    page.keyboard.press("Home")
    assert "round 0 of" in page.inner_text("#round")
    page.focus("#maps canvas")
    before = page.locator("#maps canvas").evaluate("canvas => canvas.toDataURL()")
    page.keyboard.press("+")
    assert page.locator("#maps canvas").evaluate("canvas => canvas.toDataURL()") != before


def test_a_wrong_link_gets_a_sentence(visit):
    page = visit.page
    visit.asked.clear()
    page.goto(visit.address + "#edge=1&hour=4")
    page.locator("#status.error").wait_for()
    assert "Expected edge from 200 to 8000" in page.inner_text("#status")
    # The browser itself tells of the answer 400.
    visit.wrong[:] = [said for said in visit.wrong if "400" not in said]


@pytest.mark.parametrize(
    "wrong", [{"edge": "nan"}, {"agents": "2.5"}, {"seed": "-1"}, {"colour": "red"}, {"method": "magic"}, {"hour": "x"}]
)
def test_settings_that_mean_nothing_are_refused(wrong):
    with pytest.raises(InputError):
        Choice.of(wrong)


def test_a_scene_is_computed_once_and_a_game_is_that_of_match():
    scenes, choice = Scenes(), Choice(hour=4, edge=2000)
    assert scenes.scene(choice) is scenes.scene(Choice(hour=4, edge=2000, epsilon=2.0, method="noise"))
    figures, steps = scenes.play(choice)
    again, same = scenes.play(choice)
    assert (figures, steps) == (again, same)
    assert figures["matched"] == figures["agents"]
    assert 0 <= figures["loss"] < 1


def test_files_keep_their_ids_and_have_no_hour(browser, serve, tmp_path):
    ids = ("<img src=x onerror=alert(1)>", 'a "b", c')
    places = (np.array([40.75, 40.752]), np.array([-73.99, -73.988]))
    points = Points("", ids, *places, None, None, ())
    server = serve(Source(points, replace(points, ids=("one", "two")), "<img src=x onerror=alert(2)>.csv"))
    context = browser.new_context(accept_downloads=True)
    try:
        page, shown = context.new_page(), []
        page.on("dialog", lambda dialog: shown.append(dialog.message))
        page.goto(server.address + "#vehicles=2&toString=1&method=hungarian-region")
        page.locator("#status", has_text="squares.").wait_for(timeout=120_000)
        assert "<img src=x onerror=alert(2)>.csv" in page.inner_text("#source")
        assert not page.locator("#hour").is_visible()
        assert "100 % of those given" in page.inner_text("#controls")
        assert "toString" not in page.url
        with page.expect_download() as download:
            page.click("#save-csv")
        download.value.save_as(tmp_path / "data.csv")
        rows = list(csv.DictReader(io.StringIO((tmp_path / "data.csv").read_text())))
        assert tuple(row["agent"] for row in rows) == ids
        assert {row["vehicle"] for row in rows} == {"one", "two"}
        assert shown == []
    finally:
        context.close()


def test_a_live_game_of_a_crowd_is_refused_since_it_would_hold_up_the_server(apart):
    async def opened():
        games = LiveGames(Hub(), Scenes())
        with pytest.raises(InputError, match="at most 1,000 vehicles"):
            await games.open(Choice(agents=1100))
        await games.close()

    apart(lambda: asyncio.run(opened()))
