"""Be an agent: the page's own device plays a live game on the hub, among devices in Python, in a real browser."""

import json
import struct

import cbor2
import pytest

from palmatch.live.codec import decode
from palmatch.live.transport.exchange import read_frame

# Large squares, so that there are other agents in each.
NIGHT = "#hour=4&edge=4000"
# Two places of one square, far apart.
PLACES = [(40.7503, -73.9940), (40.7681, -73.9707)]


class Wire:
    """Every frame that a page sends over its WebSocket."""

    def __init__(self, page):
        self.frames: list[bytes] = []
        page.on("websocket", lambda socket: socket.on("framesent", lambda frame: self.frames.append(frame)))


def take_part(page, place):
    page.fill("#latitude", str(place[0]))
    page.fill("#longitude", str(place[1]))
    page.locator("#longitude").dispatch_event("change")
    page.click("#take-part")
    page.locator("#take-part:disabled").wait_for()
    page.locator("#take-part:enabled").wait_for(timeout=90_000)
    assert "The game is over" in page.inner_text("#agent-status")
    return str(page.inner_text("#agent-status"))


def test_a_page_takes_part_reveals_its_square_and_one_report_and_hands_its_place_to_its_vehicle(visit, served):
    wire = Wire(visit.page)
    page = visit.open(NIGHT)
    page.locator("#agent").wait_for()
    assert "8.00 of 8 left" in page.inner_text("#budget")
    said = take_part(page, PLACES[0])
    assert "for ε = 1" in said
    assert "7.00 of 8 left" in page.inner_text("#budget")
    for _ in range(100 if "you got vehicle" in said else 0):
        if PLACES[0] in {arrival.position for found in served.games.arrivals.values() for arrival in found}:
            break
        page.wait_for_timeout(100)
    else:
        assert "you got vehicle" not in said, "the vehicle did not learn where its passenger is"
    assert page.locator("#belief").is_visible()
    assert "it holds" in page.inner_text("#odds")
    shown = [row.split("\t")[:2] for row in page.locator("#sent tr").all_inner_texts()]
    assert [label for label, _ in shown if "POST" in label and "game" not in label] == [
        "POST /api/member",
        "POST /token",
    ]
    kinds = [label for label, _ in shown if not label.startswith(("POST", "subscribe"))]
    assert {kind.split("/")[0] for kind in kinds} in ({"join", "report"}, {"join", "report", "handover"})
    # What is shown is what was on the wire, frame by frame.
    assert [int(size) for label, size in shown if "POST" not in label] == [len(frame) for frame in wire.frames]
    # The same place once more: budgets add up, and so does what can be believed.
    page.click("#take-part")
    page.locator("#budget", has_text="6.00 of 8 left").wait_for(timeout=90_000)
    page.locator("#odds", has_text="After 2 reports with ε = 2.00").wait_for()
    assert "it holds" in page.inner_text("#odds")


DRAW = "crypto.getRandomValues(new Uint32Array(2))"


def with_fixed_draws(route):
    """Serve the device with the same random draws from every place, so that every place gives the same report."""
    answer = route.fetch()
    assert DRAW in answer.text()
    route.fulfill(response=answer, body=answer.text().replace(DRAW, "[0, 0]"))


def read(frame):
    """The operation of a page's frame, its kind of topic, and what it publishes: what every other party would read."""
    op, where, packet = read_frame(frame)
    return op, where.split("/")[3], decode(where, packet) if packet else None


def without_keys(value):
    """A message without what is drawn afresh in every game: of keys, tokens and hashes only their length."""
    if isinstance(value, dict):
        return {inner: without_keys(content) for inner, content in value.items()}
    return len(value) if isinstance(value, bytes) else value


class Traffic:
    """All that a page sends: requests with the lengths of their bodies, and messages on the bus."""

    def __init__(self, page):
        self.wire, self.asked = Wire(page), []
        page.on("request", self._request)

    def _request(self, request):
        body = request.post_data_buffer
        self.asked.append((request.method, request.url, None if body is None else len(body)))

    def told(self):
        """Requests and messages but for what is drawn afresh, until the public result, which others decide too.

        As sets: how many copies leave before a game is over, and how requests interleave, is a matter of load.
        """
        messages = set()
        for sent in self.wire.frames:
            op, kind, said = read(sent)
            if kind not in ("resource", "handover"):
                body = None if said is None else without_keys(cbor2.loads(said.body))
                messages.add((op.name, kind, len(read_frame(sent)[2]), json.dumps(body, sort_keys=True)))
        return {asked for asked in self.asked if "/api/losses" not in asked[1]}, messages


def test_given_the_same_report_what_a_page_sends_does_not_depend_on_where_in_its_square_it_is(browser, served):
    seen = []
    for place in PLACES:
        context = browser.new_context()
        page = context.new_page()
        page.route("**/device.mjs", with_fixed_draws)
        traffic = Traffic(page)
        page.goto(served.address + NIGHT)
        page.locator("#agent").wait_for(timeout=120_000)
        assert "You sent report 1 of" in take_part(page, place)
        seen.append(traffic.told())
        # Neither as text nor as the bytes of its numbers.
        sent = b"".join(traffic.wire.frames)
        context.close()
        leaks = [str(number).encode() for number in place]
        leaks += [struct.pack(code, number) for number in place for code in ("<d", ">d", "<f", ">f")]
        assert not any(leak in sent for leak in leaks)
    assert seen[0] == seen[1]
    said = [message for message in seen[0][1] if message[0] == "PUBLISH"]
    assert {(kind, size) for _, kind, size, _ in said} == {("join", 1024), ("report", 512)}


def with_marked_decision(route):
    """Serve the player with a row in the list of what was sent for when it begins to decide on the table."""
    answer = route.fetch()
    decides = "const sends = await this.take(record, table.hash)"
    assert decides in answer.text()
    mark = 'this.bus.spy({ topic: "pm/1/game/decides", message: {} }, 0);'
    route.fulfill(response=answer, body=answer.text().replace(decides, mark + decides))


def test_a_page_has_subscribed_before_it_decides_so_that_no_time_shows_how_long_that_took(browser, served):
    context = browser.new_context()
    page = context.new_page()
    page.route("**/bus.mjs", with_marked_decision)
    page.goto(served.address + NIGHT)
    page.locator("#agent").wait_for(timeout=120_000)
    take_part(page, PLACES[0])
    labels = [row.split("\t")[0] for row in page.locator("#sent tr").all_inner_texts()]
    context.close()
    after = labels[labels.index("decides") + 1 :]
    assert {label.split("/")[0] for label in after} <= {"join", "report", "subscribe resource", "handover"}
    assert "report" in after


@pytest.mark.parametrize("place", [("", ""), ("40.75", ""), ("", "-73.99")])
def test_a_place_that_is_none_sends_nothing(visit, place):
    page = visit.open(NIGHT)
    page.locator("#agent").wait_for()
    wire = Wire(page)
    page.fill("#latitude", place[0])
    page.fill("#longitude", place[1])
    page.click("#take-part")
    page.locator("#agent-status", has_text="Choose a place first").wait_for()
    assert wire.frames == []


def test_a_spent_budget_and_other_squares_are_explained_and_a_new_device_begins_anew(visit):
    page = visit.open(NIGHT + "&epsilon=5")
    page.locator("#agent").wait_for()
    assert "for ε = 5." in take_part(page, PLACES[0])
    spent = take_part(page, PLACES[0])
    assert "for ε = 0." in spent
    assert "does not suffice for ε = 5" in spent
    page.locator("#budget", has_text="3.00 of 8 left").wait_for()
    page.locator("#edge").evaluate("s => { s.value = 3000; s.dispatchEvent(new Event('change')); }")
    page.wait_for_url("**edge=3000**")
    visit.ready()
    page.click("#take-part")
    page.locator("#agent-status", has_text="has taken part with other squares").wait_for()
    page.locator("#take-part:enabled").wait_for()
    page.click("#new-device")
    page.locator("#budget", has_text="8.00 of 8 left").wait_for()


def test_a_new_device_has_a_new_key_and_the_same_one_keeps_its_own(browser, served):
    context = browser.new_context()
    page = context.new_page()
    keys: list[bytes] = []
    page.on("request", lambda asked: keys.append(asked.post_data_buffer) if "/api/member" in asked.url else None)
    page.route("**/api/game**", lambda route: route.fulfill(status=400, json={"error": "No game today."}))
    page.goto(served.address + NIGHT)
    page.locator("#agent").wait_for(timeout=120_000)
    page.fill("#latitude", str(PLACES[0][0]))
    page.fill("#longitude", str(PLACES[0][1]))
    for again, known in (("#latitude", 1), ("#latitude", 1), ("#new-device", 2)):
        page.locator(again).dispatch_event("click" if again == "#new-device" else "change")
        page.locator("#agent-status", has_text="nothing has been sent").wait_for()
        page.click("#take-part")
        page.locator("#agent-status", has_text="No game today.").wait_for()
        page.locator("#take-part:enabled").wait_for()
        assert len(set(keys)) == len(keys) == known
    context.close()


@pytest.mark.parametrize(
    "visit", [{"permissions": ["geolocation"], "geolocation": {"latitude": 40.75, "longitude": -73.99}}], indirect=True
)
def test_a_place_is_marked_on_the_map_however_it_is_chosen(visit):
    page = visit.open(NIGHT)
    page.locator("#agent").wait_for()
    seen = [page.locator("#maps canvas").evaluate("canvas => canvas.toDataURL()")]
    page.click("#here")
    page.locator("#agent-status", has_text="A place is chosen").wait_for()
    assert page.input_value("#latitude") == "40.75000"
    seen.append(page.locator("#maps canvas").evaluate("canvas => canvas.toDataURL()"))
    page.fill("#latitude", "40.76")
    page.locator("#latitude").dispatch_event("change")
    seen.append(page.locator("#maps canvas").evaluate("canvas => canvas.toDataURL()"))
    assert len(set(seen)) == 3


def test_a_visitor_watches_a_running_board(browser, served):
    context = browser.new_context()
    page = context.new_page()
    served.explorer.hub = served.address.replace("http", "ws", 1) + "bus"
    try:
        page.goto(served.address + NIGHT)
        page.locator("#agent").wait_for(timeout=120_000)
        take_part(page, PLACES[1])
        page.locator("#live-games", has_text="over").wait_for()
        assert "hungarian-once" in page.inner_text("#live-games")
    finally:
        served.explorer.hub = None
        context.close()
