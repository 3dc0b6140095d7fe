"""A real server on the loopback and a real Chromium: what the page's tests run in."""

import asyncio
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from palmatch.live.transport.hub import Hub
from palmatch.web.games import LiveGames
from palmatch.web.scenes import Scenes
from palmatch.web.server import Explorer

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class Served:
    """The explorer on a thread of its own."""

    def __init__(self, source=None):
        self.address, self._source = "", source
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(30)

    def _run(self):
        asyncio.set_event_loop(self._loop)
        self._hub, scenes = Hub(), Scenes(self._source)
        self.games = LiveGames(self._hub, scenes)
        self.explorer = Explorer(scenes, games=self.games)
        address = self._loop.run_until_complete(
            self._hub.start(routes=self.explorer.routes(), middleware=self.explorer.middleware())
        )
        self.address = address.replace("ws", "http", 1).rsplit("/", 1)[0] + "/"
        self._ready.set()
        self._loop.run_forever()

    def stop(self):
        for work in (self.games.close(), self._hub.stop()):
            asyncio.run_coroutine_threadsafe(work, self._loop).result(30)
        self.explorer.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()


@pytest.fixture(scope="session")
def served():
    server = Served()
    yield server
    server.stop()


@pytest.fixture
def apart():
    """Run something on a thread without an event loop: the browser's own loop is running on the tests' thread."""
    with ThreadPoolExecutor(1) as thread:
        yield lambda work: thread.submit(work).result(120)


@pytest.fixture
def serve():
    """Start explorers of other sources; they end with the test."""
    started: list[Served] = []

    def begin(source):
        started.append(Served(source))
        return started[-1]

    yield begin
    for server in started:
        server.stop()


@pytest.fixture(scope="session")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed (apt-get install chromium)")
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield found
        found.close()


class Visit:
    """A page with everything that went wrong on it, and everything that it asked for."""

    def __init__(self, context, address):
        self.page = context.new_page()
        self.address = address
        self.wrong: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def _said(self, said):
        if said.type in ("error", "warning"):
            self.wrong.append(said.text)

    def open(self, state):
        """Open a state and wait for its game."""
        self.page.goto(self.address + state)
        self.ready()
        return self.page

    def ready(self):
        self.page.locator("#status", has_text="squares.").wait_for(timeout=120_000)

    @property
    def outside(self):
        return [url for url in self.asked if not url.startswith((self.address, "data:", "blob:"))]


@pytest.fixture
def visit(browser, served, request):
    options = {"viewport": {"width": 1280, "height": 900}, "accept_downloads": True} | getattr(request, "param", {})
    context = browser.new_context(**options)
    context.set_default_timeout(60_000)
    found = Visit(context, served.address)
    yield found
    context.close()
    assert found.wrong == []
    assert found.outside == []
