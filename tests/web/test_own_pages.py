"""The explorer serves positions of a user's files on the loopback: pages from elsewhere are refused."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from starlette.datastructures import Headers
from starlette.requests import Request

from palmatch.device.messages import KEY
from palmatch.live.transport.exchange import CBOR, PATH
from palmatch.live.transport.hub import Hub
from palmatch.web.games import LiveGames
from palmatch.web.scenes import Scenes
from palmatch.web.server import Explorer, is_own_page

HERE = "127.0.0.1:8765"


# The browser's own loop may be running on the tests' thread; SQLite's connections stay on the thread that made them.
THREAD = ThreadPoolExecutor(1)


def run(work):
    return THREAD.submit(asyncio.run, work).result(120)


def app(hub=None, host="127.0.0.1"):
    explorer = Explorer(hub=hub)
    return Hub().app(explorer.routes(), explorer.middleware(host))


def asked(server, kind, path, headers, parts=()):
    """What a server says to one request, and how many parts of its body were left unread."""
    pairs = [(name.lower().encode(), value.encode()) for name, value in ({"Host": HERE} | headers).items()]
    scope = {"type": kind, "path": path, "raw_path": path.encode(), "query_string": b"hour=4", "headers": pairs}
    scope |= {"scheme": "http", "method": "POST" if parts else "GET", "server": ("127.0.0.1", 8765), "root_path": ""}
    scope |= {"http_version": "1.1", "subprotocols": [CBOR], "extensions": {}}
    first = [{"type": "websocket.connect"}, {"type": "websocket.disconnect", "code": 1000}]
    body = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    waiting = first if kind == "websocket" else [*body, {"type": "http.request", "body": b"", "more_body": False}]
    said: list[Any] = []

    async def receive():
        return waiting.pop(0)

    async def send(message):
        said.append(message)

    run(server(scope, receive, send))
    return said, len(waiting)


def got(server, path, **headers):
    said, _ = asked(server, "http", path, {name.replace("_", "-"): value for name, value in headers.items()})
    found = {name.decode(): value.decode() for name, value in said[0]["headers"]}
    return said[0]["status"], found, b"".join(message.get("body", b"") for message in said)


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost:8765", "[::1]:8765", "192.168.1.2", "LOCALHOST"])
def test_the_page_is_served_at_localhost_and_at_addresses(host):
    headers = {"Host": host, "Origin": f"http://{host}"}
    assert asked(app(), "http", "/healthz", headers)[0][0]["status"] == 200
    assert is_own_page(PATH, Headers(headers), "127.0.0.1")


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "elsewhere.example:8765"},
        {"Host": "127.0.0.1.elsewhere.example"},
        {"Host": ""},
        {"Host": "[::1"},
        {"Origin": "http://elsewhere.example"},
        {"Origin": "http://127.0.0.1:9000"},
        {"Origin": "null"},
        {"Origin": "http://[::1"},
        {"Origin": f"file://{HERE}"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_foreign_page_gets_no_position_and_no_connection_to_the_hub(headers):
    for path in ("/api/map", "/api/about", "/metrics", "/static/app.mjs"):
        status, _, body = got(app(), path, **{name.replace("-", "_"): value for name, value in headers.items()})
        assert status == 403
        assert b"agents" not in body
    assert not is_own_page(PATH, Headers({"Host": HERE} | headers), "127.0.0.1")


def test_a_link_on_another_site_opens_the_page():
    assert got(app(), "/", Sec_Fetch_Site="cross-site")[0] == 200


def test_a_name_that_was_asked_for_is_served_and_no_other():
    server = app(host="Box.lan")
    assert got(server, "/healthz", Host="box.lan:1")[0] == 200
    assert got(server, "/healthz", Host="other.lan")[0] == 403


def test_the_page_may_connect_to_its_own_server_and_to_the_hub_that_it_watches_only():
    def allowed(hub):
        policy = got(app(hub), "/")[1]["content-security-policy"]
        return next(part.split()[1:] for part in policy.split(";") if part.strip().startswith("connect-src"))

    assert allowed(None) == ["'self'", f"ws://{HERE}"]
    assert allowed("wss://board.example:9/bus") == ["'self'", f"ws://{HERE}", "wss://board.example:9"]


@pytest.mark.parametrize("path", ["../server.py", "../../__init__.py", "//etc/passwd", ""])
def test_static_files_are_those_of_the_page_only(path):
    assert got(app(), f"/static/{path}")[0] == 404


def test_a_key_that_is_too_long_is_refused_before_all_of_it_is_read():
    hub, scenes = Hub(), Scenes()
    games = THREAD.submit(LiveGames, hub, scenes).result()
    server = hub.app(Explorer(scenes, games=games).routes())
    said, unread = asked(server, "http", "/api/member", {}, (b"0" * 4096,) * 100)
    assert (said[0]["status"], unread > 90) == (400, True)
    assert asked(server, "http", "/api/member", {}, (b"0" * KEY,))[0][0]["status"] == 200
    run(games.close())


def test_a_point_of_the_chart_that_no_page_waits_for_is_not_computed(monkeypatch):
    computed: list[Any] = []
    explorer = Explorer()
    monkeypatch.setattr("palmatch.web.server._chart_losses", lambda choice: computed.append(choice) or {})
    explorer._background, explorer._worker = ThreadPoolExecutor(1), None
    gone = [{"type": "http.disconnect"}]
    scope = {"type": "http", "method": "GET", "path": "/api/losses", "query_string": b"hour=4", "headers": []}

    async def ask(messages):
        async def receive():
            return messages[0] if messages else await asyncio.Event().wait()

        return (await explorer._losses(Request(scope, receive))).status_code

    assert run(ask(gone)) == 503
    assert computed == []
    assert run(ask([])) == 200
    assert len(computed) == 1
    explorer._background.shutdown()
