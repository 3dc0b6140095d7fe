"""The explorer's server: static files, scenes as JSON, games as packed numbers. It serves this machine unless told.

Every page carries a policy that allows nothing from elsewhere, so that the browser itself refuses outside requests;
and pages from elsewhere are refused (`OwnPagesOnly`), since positions of a user's files are served here.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import signal
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from palmatch.device.messages import KEY
from palmatch.errors import PalmatchError
from palmatch.threads import end_with_parent
from palmatch.web.games import LiveGames
from palmatch.web.page import HEADERS, device_script, policy, static_folder
from palmatch.web.scenes import CHART_PAIRS, EPSILONS, Choice, Scenes, Source, chart_lines, methods


class OwnPagesOnly:
    """Refuse requests and WebSockets of pages from elsewhere, and by a name that may belong to any site.

    A foreign page may resolve its own name to the loopback (DNS rebinding) and would then share an origin with the
    explorer; it cannot do so with an IP address or with `localhost`. A navigation to the page itself is allowed.
    """

    def __init__(self, app: ASGIApp, host: str) -> None:
        self.app, self.host = app, host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 403 to what is refused."""
        if scope["type"] != "http" or is_own_page(scope["path"], Headers(scope=scope), self.host):
            await self.app(scope, receive, send)
        else:
            refused = {"error": "The explorer answers its own page only, at localhost or an IP address."}
            await JSONResponse(refused, status_code=403, headers=HEADERS)(scope, receive, send)


def is_own_page(path: str, headers: Headers, host: str) -> bool:
    """Tell whether a request comes from a page of this server, which is reached at addresses, localhost and `host`."""
    where, origin = headers.get("host", ""), headers.get("origin")
    own = origin is None or origin in (f"http://{where}", f"https://{where}")
    # Browsers state where a request comes from also where they send no Origin.
    near = headers.get("sec-fetch-site", "none") in ("none", "same-origin") or path == "/"
    try:
        name = urlsplit(f"//{where}").hostname or ""
        known = name in ("localhost", host.lower()) or bool(ipaddress.ip_address(name))
    except ValueError:
        known = False
    return own and near and known


class Explorer:
    """The routes of the page; they can be served alone or beside a hub."""

    def __init__(self, scenes: Scenes | None = None, *, hub: str | None = None, games: LiveGames | None = None) -> None:
        self.scenes, self.hub, self.games = scenes or Scenes(), hub, games
        self._background: ProcessPoolExecutor | None = None
        self._one_chart = asyncio.Lock()

    def close(self) -> None:
        """End the process in the background, if there is one."""
        if self._background is not None:
            # What is being computed there may take half a minute more, and no request waits for it.
            os.kill(self._worker.result(), signal.SIGTERM)
            self._background.shutdown(cancel_futures=True)

    def middleware(self, host: str = "localhost") -> list[Middleware]:
        """Return what stands before the routes, for a server that is reached as `host`."""
        return [Middleware(OwnPagesOnly, host=host)]

    def routes(self) -> list[BaseRoute]:
        """Return what is to be served."""
        games = (
            []
            if self.games is None
            else [
                Route("/api/game", self._game, methods=["POST"]),
                Route("/api/member", self._member, methods=["POST"]),
                self.games.issuer.route(),
            ]
        )
        return [
            *games,
            Route("/", self._page),
            Route("/api/about", self._about),
            Route("/api/map", self._map),
            Route("/api/play", self._play),
            Route("/api/losses", self._losses),
            Route("/device.mjs", device_script),
            Mount("/static", StaticFiles(directory=str(static_folder()))),
        ]

    async def _game(self, request: Request) -> Response:
        assert self.games is not None
        return await _answered(self.games.open, request)

    async def _member(self, request: Request) -> Response:
        """Register a page's lasting key: 32 bytes, and nothing else."""
        assert self.games is not None
        key = b""
        async for part in request.stream():
            key += part
            if len(key) > KEY:
                break
        if len(key) != KEY:
            return JSONResponse({"error": f"Expected a key of {KEY} bytes."}, status_code=400, headers=HEADERS)
        self.games.register(key)
        return JSONResponse({}, headers=HEADERS)

    def app(self) -> Starlette:
        """Return the application."""
        return Starlette(routes=self.routes(), middleware=self.middleware())

    def _started(self) -> ProcessPoolExecutor:
        """Return the process in the background, started where there is none yet."""
        if self._background is None:
            self._background = ProcessPoolExecutor(
                1, mp_context=get_context("spawn"), initializer=_begin, initargs=(self.scenes.source,)
            )
            self._worker = self._background.submit(os.getpid)
        return self._background

    async def _page(self, request: Request) -> Response:
        # What the chart needs takes seconds to load: it begins with the page.
        self._started()
        own = request.url.replace(scheme="wss" if request.url.scheme == "https" else "ws")
        sockets = [str(own), *([] if self.hub is None else [self.hub])]
        headers = HEADERS | {"Content-Security-Policy": policy(*sockets)}
        return Response((static_folder() / "index.html").read_bytes(), media_type="text/html", headers=headers)

    async def _about(self, _: Request) -> Response:
        chart = {"methods": chart_lines(), "epsilons": EPSILONS, "pairs": CHART_PAIRS}
        facts = {"methods": methods(), "source": self.scenes.source.name, "hub": self.hub, "chart": chart}
        kinds = {"games": self.games is not None, "city": self.scenes.source.agents is None}
        return JSONResponse(facts | kinds, headers=HEADERS)

    async def _map(self, request: Request) -> Response:
        return await _answered(lambda choice: asyncio.to_thread(self.scenes.map, choice), request)

    async def _losses(self, request: Request) -> Response:
        """Compute a point of the chart in a process of its own, so that games are not slowed by it."""
        loop, background = asyncio.get_running_loop(), self._started()
        async with self._one_chart:
            # A visitor that has moved on waits for other points, which are not to wait for these.
            if await request.is_disconnected():
                return Response(status_code=503, headers=HEADERS)
            return await _answered(lambda choice: loop.run_in_executor(background, _chart_losses, choice), request)

    async def _play(self, request: Request) -> Response:
        return await _answered(lambda choice: asyncio.to_thread(self.scenes.play, choice), request)


async def _answered(work: Callable[[Choice], Awaitable[Any]], request: Request) -> Response:
    """Answer with figures as JSON; with figures and steps as the length of the figures, the figures, the steps."""
    try:
        answer = await work(Choice.of(dict(request.query_params)))
    except PalmatchError as error:
        return JSONResponse({"error": str(error)}, status_code=400, headers=HEADERS)
    if isinstance(answer, dict):
        return JSONResponse(answer, headers=HEADERS)
    figures, steps = answer
    head = bytes(JSONResponse(figures).body)
    # Padded to four bytes, so that the steps can be read as whole numbers where they are.
    padded = head.ljust(-(-len(head) // 4) * 4)
    content = len(padded).to_bytes(4, "little") + padded + steps
    return Response(content, media_type="application/octet-stream", headers=HEADERS)


# The scenes of the process in the background.
_scenes: Scenes


def _begin(source: Source) -> None:
    global _scenes
    end_with_parent()
    os.nice(10)
    _scenes = Scenes(source)


def _chart_losses(choice: Choice) -> dict[str, Any]:
    return _scenes.losses(choice)
