"""Static pages and what they are served with; and the page by which an owner takes part by phone.

That page is a device: whoever serves it is trusted like its maker. So the operator serves it, on an origin of its own,
with what it has signed; what the page sends goes from the browser to hub and issuer, and never here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from palmatch.live.trust import Trust

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'{others}; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY.format(others=""),
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_TYPES = {"html": "text/html", "css": "text/css", "mjs": "text/javascript"}
# What a phone loads, and no more.
_STATIC = ("phone.css", "phone.mjs", "bus.mjs", "cbor.mjs", "keys.mjs")


def static_folder() -> Any:
    """Return the folder of the pages' files."""
    return files("palmatch.web") / "static"


def device_script(_: Request) -> Response:
    """Answer with the device in JavaScript."""
    return _file(files("palmatch.device") / "device.mjs")


def policy(*addresses: str) -> str:
    """Return a page's policy: it may talk to its own server and to these, and to no other."""
    others = "".join(f" {part.scheme}://{part.netloc}" for part in map(urlsplit, addresses))
    return POLICY.format(others=others)


def _file(path: Any, headers: Mapping[str, str] = HEADERS) -> Response:
    return Response(path.read_bytes(), media_type=_TYPES[path.name.rpartition(".")[2]], headers=headers)


@dataclass(frozen=True, slots=True)
class PhonePage:
    """What a phone is told: whom it trusts, where hub and issuer are, and its lifetime budget ε."""

    trust: Callable[[], Trust]
    hub: str
    issuer: str
    budget: float

    def app(self) -> Starlette:
        """Return the application: the page, its scripts, and what it is told."""
        scripts = [Route(f"/static/{name}", self._static) for name in _STATIC]
        own = [Route("/", self._page), Route("/config.json", self._config), Route("/device.mjs", device_script)]
        return Starlette(routes=[*own, *scripts])

    def _page(self, _: Request) -> Response:
        allowed = {"Content-Security-Policy": policy(self.hub, self.issuer), "Permissions-Policy": "geolocation=(self)"}
        return _file(static_folder() / "phone.html", HEADERS | allowed)

    def _static(self, request: Request) -> Response:
        return _file(static_folder() / request.url.path.rpartition("/")[2])

    def _config(self, _: Request) -> Response:
        told = {"trust": self.trust(), "hub": self.hub, "issuer": self.issuer, "budget": self.budget}
        return Response(msgspec.json.encode(told), media_type="application/json", headers=HEADERS)
