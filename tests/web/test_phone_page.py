"""Take part by phone: the operator's page in Chromium, as two phones and a device in Python in one game, over TLS."""

import asyncio
import re
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
import trustme

from live.conftest import free_port
from live.processes import line_of, party, started
from palmatch.live.trust import load_trust
from palmatch.web.page import PhonePage
from running import run

PHONE = {
    "viewport": {"width": 390, "height": 844},
    "device_scale_factor": 2,
    "has_touch": True,
    "is_mobile": True,
    "ignore_https_errors": True,
    "permissions": ["geolocation"],
    "geolocation": {"latitude": 40.7503, "longitude": -73.9940},
}
# Of one square of 1000 m; there is one vehicle less than agents in it, and one far away.
VEHICLES = "id,lat,lon\nv1,40.7502,-73.9930\nv2,40.7515,-73.9935\nv3,40.9000,-73.9000\n"
AT = "40.7510,-73.9925"


class Town:
    """An operator with its board, its gateway and its page, each in a process of its own, over TLS."""

    def __init__(self, folder, parties, *operator):
        self.folder, self.parties = folder, parties
        (folder / "vehicles.csv").write_text(VEHICLES)
        authority = trustme.CA()
        authority.cert_pem.write_to_path(folder / "ca.pem")
        issued = authority.issue_cert("127.0.0.1")
        issued.private_key_pem.write_to_path(folder / "key.pem")
        issued.cert_chain_pems[0].write_to_path(folder / "certificate.pem")
        self.tls = ("--certificate", "certificate.pem", "--key", "key.pem")
        self.run("operator", "keys", "--resources", "vehicles.csv", "--member", "alice", *operator)
        board = self.start("board", "keys", "--resources", "vehicles.csv", "--every", "14s", "--joining", "9s",
                           "--slot", "2s", "--port", free_port(), *self.tls)  # fmt: skip
        self.hub = line_of(board, r"The hub is at (wss://\S+)\.")[1]
        self.trusting = ("--trust", "keys/trust.json", "--hub", self.hub, "--ca", "ca.pem")
        self.gateway = self.start("resource", "keys/gateway.json", *self.trusting)
        line_of(self.gateway, "Serving")
        page = self.start("operator", "page", "keys/trust.json", "--hub", self.hub, "--port", free_port(), *self.tls,
                          "--budget", 3)  # fmt: skip
        self.page = line_of(page, r"The page is at (https://\S+)")[1]

    def start(self, *words):
        return self.parties.enter_context(party(*words, folder=self.folder))

    def run(self, *words):
        told = run("live", *words, folder=self.folder)
        assert (told.returncode, told.stderr) == (0, ""), told.stderr

    def phone(self, browser, cut=None, **changes):
        """A phone whose key the operator has listed, on the page; what went wrong there fails the test."""
        context = browser.new_context(**PHONE | changes)
        self.parties.callback(context.close)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.wrong, page.asked = [], []

        def heard(socket):
            page.asked.append(socket.url)
            socket.on("close", lambda _: page.wrong.append("the connection was closed"))

        if cut is not None:
            page.route_web_socket("**/bus", lambda route: cut.append((route, route.connect_to_server())))
        page.on("console", lambda said: page.wrong.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: page.wrong.append(str(error)))
        page.on("request", lambda asked: page.asked.append(asked.url))
        page.on("websocket", heard)
        page.goto(self.page)
        page.locator("#status", has_text="Games are being played").wait_for()
        self.run("operator", "keys", "--add-member", page.inner_text("#member"))
        return page


@pytest.fixture
def parties():
    with ExitStack() as stack:
        yield stack


def take_part(page):
    page.click("#take-part")
    page.locator("#take-part:disabled").wait_for()


def ended(page):
    for _ in range(90):
        page.wait_for_timeout(1000)
        assert page.wrong == []
        if page.locator("#take-part:enabled").count():
            break
    assert "The game is over" in page.inner_text("#status"), page.inner_text("#status")
    return str(page.inner_text("#got"))


def test_two_phones_and_a_device_in_python_play_one_game(browser, tmp_path, parties):
    town = Town(tmp_path, parties)
    first = town.phone(browser)
    second = town.phone(browser, geolocation={"latitude": 40.7525, "longitude": -73.9945})
    # The one uses its location and gives it to what it gets; the other taps the map, and gives its place to no party.
    first.click("#here")
    first.locator("#place", has_text="is public").wait_for()
    assert float(first.input_value("#latitude")) == pytest.approx(40.7503)
    second.click("#map", position={"x": 178, "y": 130})
    second.locator("#place", has_text="is public").wait_for()
    second.check("#no-hand-over")
    device = town.start("device", "--at", AT, "--epsilon", 1, "--ledger", "a.ledger", "--member",
                        "keys/member-alice.key", "--patience", "60s", *town.trusting)  # fmt: skip
    game = line_of(device, r"(\S+): taking part")[1]
    for page in (first, second):
        take_part(page)
    got = [ended(page) for page in (first, second)]
    told = "".join(device.stdout or ())
    assert device.wait() == 0
    vehicles = [re.search(r"You got (v\d)\b", text) for text in got]
    mine = re.search(rf"{game}: matched to (v\d), which answered Accepted", told)
    held = [found[1] for found in (*vehicles, mine) if found]
    assert len(held) == len(set(held)) >= 2
    for page, found, given in zip((first, second), vehicles, ("your position", "a reservation code"), strict=True):
        said = page.inner_text("#revealed")
        assert said.startswith("Revealed: that you take part, and your region ")
        assert "at most e^1 times as likely from your place" in said
        assert page.inner_text("#budget").startswith("ε = 2 is left of 3")
        if found:
            assert f"To {found[1]} alone: {given}" in said
            where = line_of(town.gateway, rf"{game}: {found[1]} (.*)")[1] if page is second else ""
            if page is second:
                assert where == f"is reserved for the code {re.search('code (....-....)', got[1])[1]}"
    origins = {town.page, town.hub.rsplit("/", 1)[0] + "/", town.hub.replace("wss", "https").rsplit("/", 1)[0] + "/"}
    for page in (first, second):
        assert page.wrong == []
        assert {re.sub(r"(//[^/]+/).*", r"\1", url) for url in page.asked if not url.startswith("data:")} <= origins
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        for button in page.locator("button, select, input[type=checkbox]").all():
            box = button.bounding_box()
            assert box is None or box["height"] >= 22
        page.screenshot(path=tmp_path / f"phone-{page is second}.png", full_page=True)
    # What was paid and which key the issuer knows is there after a reload; a larger budget of the page gives nothing.
    key = first.inner_text("#member")
    first.reload()
    first.locator("#budget", has_text="ε = 2 is left of 3").wait_for()
    assert first.inner_text("#member") == key


def test_a_phone_that_is_cut_off_in_a_game_connects_again_and_goes_on(browser, tmp_path, parties):
    town, connections = Town(tmp_path, parties), list[Any]()
    page = town.phone(browser, connections)
    page.click("#here")
    page.locator("#place", has_text="is public").wait_for()
    take_part(page)
    page.locator("#status", has_text="Joining").wait_for()
    [(mine, hubs)] = connections
    hubs.close()
    mine.close()
    page.locator("#take-part:enabled").wait_for(timeout=90_000)
    assert len(connections) == 2
    assert re.match(r"You got v\d|No resource this time", page.inner_text("#got")), page.inner_text("#status")
    # One report, paid once.
    assert page.inner_text("#budget").startswith("ε = 2 is left of 3")


def test_a_page_that_is_open_while_keys_are_replaced_plays_under_the_new_ones(browser, tmp_path, parties):
    town = Town(tmp_path, parties)
    page = town.phone(browser)
    page.click("#here")
    page.locator("#place", has_text="is public").wait_for()
    town.run("operator", "keys", "--rotate", "board", "--rotate", "issuer")
    # Of two games at least one is opened after that.
    for _ in range(2):
        take_part(page)
        ended(page)
    assert len([url for url in page.asked if url.endswith("/config.json")]) == 2


def test_a_phone_that_the_operator_does_not_know_is_told_what_to_do(browser, tmp_path, parties):
    town = Town(tmp_path, parties)
    page = town.phone(browser)
    town.run("operator", "keys", "--remove-member", page.inner_text("#member"))
    page.click("#take-part")
    page.locator("#status.error", has_text="Choose a place first").wait_for()
    page.click("#here")
    page.locator("#place", has_text="is public").wait_for()
    take_part(page)
    page.locator("#status.error", has_text="The operator does not know this phone yet").wait_for()
    assert page.inner_text("#budget").startswith("ε = 3 is left of 3")


def test_the_page_may_talk_to_hub_and_issuer_and_to_no_other_and_serves_no_more_than_a_phone_needs(tmp_path, apart):
    (tmp_path / "vehicles.csv").write_text(VEHICLES)
    assert run("live", "operator", "keys", "--resources", "vehicles.csv", folder=tmp_path).returncode == 0
    trust = load_trust(tmp_path / "keys" / "trust.json")
    app = PhonePage(lambda: trust, "wss://hub.example/bus", "https://tokens.example/token", 2.0).app()

    async def answers():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://page") as client:
            return {path: await client.get(path) for path in (*scripts, *absent, "/", "/config.json")}

    scripts = ("/device.mjs", *(f"/static/{name}.mjs" for name in ("phone", "bus", "keys", "cbor")))
    absent = ("/bus", "/token", "/static/app.mjs", "/static/../page.py", "/api/game")
    found = apart(lambda: asyncio.run(answers()))
    policy = found["/"].headers["content-security-policy"]
    assert "connect-src 'self' wss://hub.example https://tokens.example;" in policy
    assert "default-src 'none'; script-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    told = found["/config.json"].json()
    assert (told["hub"], told["budget"], told["trust"]["version"]) == ("wss://hub.example/bus", 2.0, 1)
    assert all(found[path].headers["content-type"].startswith("text/javascript") for path in scripts)
    assert [found[path].status_code for path in absent] == [404] * len(absent)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--hub", "wss://hub.example/bus", "--host", "0.0.0.0"), "phones tell no place to a page without TLS"),
        (("--hub", "https://hub.example/bus"), "Expected --hub ws"),
    ],
)
def test_a_page_that_could_not_work_is_not_served(tmp_path, words, reason):
    (tmp_path / "vehicles.csv").write_text(VEHICLES)
    assert run("live", "operator", "keys", "--resources", "vehicles.csv", folder=tmp_path).returncode == 0
    with started("live", "operator", "page", "keys/trust.json", *words, folder=tmp_path) as page:
        assert page.wait() == 2
        assert reason in page.stderr.read()
