"""One dataset of a portal, asked until it answers: limits, cut connections, and a folder in which answers are kept.

Knows addresses, waiting and checksums. It may not know what an answer says: the caller brings the function that
reads it, and raises `TransientFailure` where asking again may help.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import random
import re
import ssl
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.message import Message
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlencode, urlsplit

from palmatch.data.whole import write_whole
from palmatch.errors import InputError, PalmatchError

Progress = Callable[[str, int, int], None]
Answer = TypeVar("Answer")

_LARGEST: Final = 1 << 26


class PortalError(PalmatchError, RuntimeError):
    """The portal gave no usable answer; the message says what came instead and what to do."""


class TransientFailure(Exception):
    """A failure after which asking again may help."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to wait for an answer, and how often to ask again.

    Attributes
    ----------
    attempts : int
        How often one question is asked before giving up.
    silence, answer : float
        Seconds without a byte, and for a whole answer, after which it counts as not given.
    first_wait, longest_wait : float
        Seconds before the second attempt, doubled for each further one, and the most that is waited at a time. A
        portal that asks for more is not waited for.
    sleep, jitter : callable
        What waits, and the random number in [0, 1) that keeps many users from asking at the same moment.
    """

    attempts: int = 6
    silence: float = 90.0
    answer: float = 300.0
    first_wait: float = 1.0
    longest_wait: float = 120.0
    sleep: Callable[[float], None] = time.sleep
    jitter: Callable[[], float] = random.random

    def wait(self, attempt: int, asked: float) -> float:
        """Return the seconds to wait after an attempt, at least those that the portal asked for."""
        doubled = min(self.longest_wait, self.first_wait * 2.0 ** (attempt - 1))
        return max(doubled * (1 + self.jitter()) / 2, asked)


@dataclass(slots=True)
class SocrataClient:
    """One dataset of the portal: asks, asks again, and keeps the answers."""

    base: str
    dataset: str
    cache: Path | None
    retry: RetryPolicy
    progress: Progress
    token: str = field(repr=False)
    asked: int = 0
    kept: int = 0
    notes: list[str] = field(default_factory=list)
    troubles: Counter[str] = field(default_factory=Counter)

    @property
    def name(self) -> str:
        """What a message is about: the portal and its dataset."""
        return f"{urlsplit(self.base).netloc}, dataset {self.dataset}"

    def address(self, form: str, question: Mapping[str, str]) -> str:
        """Return the address of a question; the same question always has the same one, so answers can be kept by it."""
        return f"{self.base}/resource/{self.dataset}.{form}?{urlencode(question)}"

    def ask(self, form: str, question: Mapping[str, str], read: Callable[[bytes], Answer], *, what: str) -> Answer:
        """Return what `read` makes of the answer; it raises `TransientFailure` where asking again may help."""
        address = self.address(form, question)
        kept = self._kept(address, read)
        if kept is not None:
            self.kept += 1
            return kept
        body, answer = self._fetched(address, read, what=what)
        self._keep(address, body)
        return answer

    def all_notes(self) -> tuple[str, ...]:
        """Return what a reader should know, and how often something had to be asked again."""
        listed = ", ".join(f"{reason} ({count})" for reason, count in self.troubles.items())
        again = f"Questions asked again because of trouble: {self.troubles.total()}: {listed}."
        return (*self.notes, again) if self.troubles else tuple(self.notes)

    def _fetched(self, address: str, read: Callable[[bytes], Answer], *, what: str) -> tuple[bytes, Answer]:
        attempt = 0
        while True:
            attempt += 1
            self.asked += 1
            try:
                body = self._once(address, what=what)
                return body, read(body)
            except TransientFailure as trouble:
                self.troubles[str(trouble)] += 1
                if attempt >= self.retry.attempts or trouble.wait > self.retry.longest_wait:
                    raise PortalError(self._gave_up(trouble, attempt, what=what)) from trouble
                seconds = self.retry.wait(attempt, trouble.wait)
                waiting = f"waiting {seconds:.0f} s ({trouble})"
            self.progress(waiting, 0, 1)
            self.retry.sleep(seconds)
            self.progress(waiting, 1, 1)

    def _once(self, address: str, *, what: str) -> bytes:
        request = urllib.request.Request(address, headers={"User-Agent": "palmatch"})
        if self.token:
            # Not a plain header: those follow a redirection to wherever it leads.
            request.add_unredirected_header("X-App-Token", self.token)
        try:
            until = time.monotonic() + self.retry.answer
            with urllib.request.build_opener().open(request, timeout=self.retry.silence) as response:
                if response.status == http.HTTPStatus.ACCEPTED:
                    raise TransientFailure("202, still being prepared", _asked_wait(response.headers))
                return _body(response, until=until)
        except urllib.error.HTTPError as error:
            with error:
                raise self._refusal(error, what=what) from None
        except (OSError, http.client.HTTPException) as error:
            raise self._unheard(error) from error

    def _refusal(self, error: urllib.error.HTTPError, *, what: str) -> Exception:
        said = f"{error.code} {error.reason}"
        if error.code in (408, 429) or error.code >= 500:
            return TransientFailure(said, _asked_wait(error.headers))
        with suppress(OSError, ValueError, LookupError, TypeError, RecursionError, http.client.HTTPException):
            words = " ".join(str(json.loads(error.read(1 << 16))["message"]).split())
            said += f" ({(words.replace(self.token, '...') if self.token else words)[:200]})"
        advice = {
            401: "check the app token in SOCRATA_APP_TOKEN",
            403: "check the app token in SOCRATA_APP_TOKEN, or get one from the portal",
            404: "check the dataset's id and PALMATCH_PORTAL",
        }.get(error.code, "its columns may have changed: try again with --no-cache, or another --dataset")
        return PortalError(f"{self.name}: asked for {what}, got {said}; {advice}.")

    def _unheard(self, error: Exception) -> Exception:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(cause, ssl.SSLCertVerificationError):
            reason = cause.verify_message
            return PortalError(f"{self.name}: its certificate cannot be trusted ({reason}); check clock and proxy.")
        if isinstance(cause, TimeoutError):
            return TransientFailure("no whole answer in time")
        if isinstance(cause, http.client.HTTPException | ConnectionResetError | BrokenPipeError):
            return TransientFailure("a cut connection")
        return TransientFailure(f"no connection: {getattr(cause, 'strerror', None) or cause}")

    def _gave_up(self, trouble: TransientFailure, attempt: int, *, what: str) -> str:
        if trouble.wait > self.retry.longest_wait:
            last = f"{trouble} and the wish to wait {trouble.wait:,.0f} seconds; try again then"
        else:
            last = f"{trouble} at the last of {attempt} attempts; check the connection and try again later"
        kept = f"; what has come is kept in {self.cache}, and the same command goes on from there" if self.cache else ""
        return f"{self.name}: asked for {what}, got {last}{kept}."

    # --- the folder of answers ---

    def _files(self, address: str, folder: Path) -> tuple[Path, Path]:
        name = hashlib.sha256(address.encode()).hexdigest()[:32]
        pages = folder / "portal" / self.dataset
        return pages / f"{name}.answer", pages / f"{name}.json"

    def _kept(self, address: str, read: Callable[[bytes], Answer]) -> Answer | None:
        if self.cache is None:
            return None
        page, checksum = self._files(address, self.cache)
        try:
            body, expected = page.read_bytes(), checksum.read_bytes()
            if expected == _checksum(address, body):
                return read(body)
            reason = "it does not fit its checksum"
        except FileNotFoundError:
            return None
        except (OSError, TransientFailure) as error:
            reason = str(error)
        self.notes.append(f"{page} was damaged ({reason}) and was fetched again.")
        return None

    def _keep(self, address: str, body: bytes) -> None:
        if self.cache is None:
            return
        page, checksum = self._files(address, self.cache)
        try:
            page.parent.mkdir(parents=True, exist_ok=True)
            # The checksum comes last: a page without one counts as not there.
            write_whole(page, body)
            write_whole(checksum, _checksum(address, body))
        except (OSError, InputError) as error:
            reason = getattr(error.__cause__ or error, "strerror", None) or error
            self.notes.append(f"Answers could not be kept in {self.cache} ({reason}); a cut download begins anew.")
            self.cache = None

    def forget(self, addresses: Sequence[str]) -> None:
        """Throw away answers that do not fit together, so that the next attempt asks for all of them."""
        if self.cache is not None:
            for path in (path for address in addresses for path in self._files(address, self.cache)):
                with suppress(OSError):
                    path.unlink(missing_ok=True)


def _checksum(address: str, body: bytes) -> bytes:
    checksum = {"address": address, "bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}
    return (json.dumps(checksum, indent=2) + "\n").encode()


def _asked_wait(headers: Message) -> float:
    """Return the seconds that Retry-After asks for, as a number or a date."""
    text = (headers.get("Retry-After") or "").strip()
    if re.fullmatch(r"\d{1,9}", text, re.ASCII):
        return float(text)
    with suppress(TypeError, ValueError, IndexError):
        return max(0.0, (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds())
    return 0.0


def _body(response: http.client.HTTPResponse, *, until: float) -> bytes:
    # Asking for all of it at once would wait forever for an answer that comes a byte at a time.
    body = bytearray()
    while part := response.read1(1 << 16):
        body += part
        if time.monotonic() > until:
            raise TimeoutError
        if len(body) > _LARGEST:
            raise TransientFailure(f"an answer of more than {_LARGEST:,} bytes")
    announced = response.headers.get("Content-Length") or ""
    if announced.isdecimal() and len(body) < int(announced):
        raise http.client.IncompleteRead(b"")
    return bytes(body)
