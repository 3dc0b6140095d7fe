"""The issuer: one blind token for each registered member and game. It knows who takes part, but not as whom.

A member asks with its lasting key; what it gets signed is blinded, so that no token can be linked to its request. The
journal is written before the answer is given, and the same request gets the same answer again.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from palmatch.device import messages as m
from palmatch.errors import InputError, ProtocolError, TransportError
from palmatch.live import tokens
from palmatch.live.codec import body_of, decode, read_body, signed_bytes
from palmatch.live.journal import DISK_SECONDS, KEPT_GAMES, CannotWrite, open_books
from palmatch.live.keys import Signer, signed_by
from palmatch.live.ops import Metrics, Tasks
from palmatch.live.topics import Topic, game_name, number_of
from palmatch.live.transport.base import Transport
from palmatch.live.trust import Trust, Trusted, read_members, stamp_of

_LOG = logging.getLogger(__name__)

_TABLES = Path(__file__).with_name("issuer.sql").read_text(encoding="utf-8")
_CONTEXT = "token"
_LARGEST_REQUEST = 2048
# A page on the operator's origin may read the answers: what is asked is signed by a member, and no cookie counts.
_ANY_PAGE = {"Access-Control-Allow-Origin": "*"}


class Issuer:
    """The issuer's books, in an SQLite file, and its keys: a lasting one to sign with, and one for each game."""

    def __init__(
        self, path: Path, signer: Signer, *, clock: Callable[[], float] = time.time, metrics: Metrics | None = None
    ) -> None:
        self.signer, self._path, self._clock, self._metrics = signer, path, clock, metrics or Metrics()
        # It holds the keys of games, with which tokens can be made, and which members asked for one.
        self._books = open_books(path, _TABLES, "the issuer's", None)
        self._keys: dict[str, rsa.RSAPrivateKey] = {}
        # A list of members that may change, and what it was like when it was read.
        self._list: Path | None = None
        self._read: tuple[int, int, int] | None = None

    def close(self) -> None:
        """Close the journal."""
        self._books.close()

    def register(self, members: Iterable[bytes]) -> None:
        """Add members by their lasting keys."""
        self._write("INSERT OR IGNORE INTO member VALUES (?)", members)

    def _write(self, statement: str, members: Iterable[bytes], first: str = "SELECT 1") -> None:
        rows = [(key,) for key in members]
        if any(len(key) != m.KEY for (key,) in rows):
            raise InputError(f"Expected keys of {m.KEY} bytes.")
        # One transaction: all of them, or none.
        self._books.execute("BEGIN")
        with self._books:
            self._books.execute(first)
            self._books.executemany(statement, rows)

    def follow(self, path: Path) -> None:
        """Have the members be those of a list: now, and whenever it has changed and a member asks for a token."""
        self._list = path
        self._read_list()

    def _read_list(self) -> None:
        if self._list is None:
            return
        found = stamp_of(self._list)
        if found is None:
            raise InputError(f"{self._list}: cannot read the list of members.")
        if self._read != found:
            # A key that is no longer on the list is that of no member any more.
            self._write("INSERT INTO member VALUES (?)", set(read_members(self._list)), "DELETE FROM member")
            self._read = found

    def games(self) -> list[str]:
        """Return the games that have a key in the journal."""
        return [name for (name,) in self._books.execute("SELECT name FROM game ORDER BY name")]

    def note_opening(self, game: str, opening: bytes) -> bool:
        """Note that a game was opened; False where it was opened otherwise before: it gets no further token."""
        row = (game, *number_of(game), opening)
        self._insert("opening", (*row, 0))
        self._books.execute("UPDATE opening SET twice = 1 WHERE game = ? AND hash <> ?", (game, opening))
        return not self._was_opened_twice(game)

    def _was_opened_twice(self, game: str) -> bool:
        return self._books.execute("SELECT 1 FROM opening WHERE game = ? AND twice", (game,)).fetchone() is not None

    def last_opened(self, series: str) -> int:
        """Return the number of the last game of a series that was opened; 0 if none was."""
        found = self._books.execute("SELECT coalesce(max(number), 0) FROM opening WHERE series = ?", (series,))
        return int(found.fetchone()[0])

    def key(self, game: str) -> bytes:
        """Return the public key for a game (DER), made when it is asked for the first time."""
        return tokens.public_der(self._private(game))

    def announcement(self, game: str) -> tuple[Topic, bytes]:
        """Return the topic and packet with which the game's key is published."""
        topic = Topic(game, "issuer")
        return topic, self.signer.packet(topic, m.IssuerKey(key=self.key(game)))

    def answer(self, body: bytes, signature: bytes) -> m.TokenReply:
        """Sign a member's blinded token: its first of the game, or the same one again."""
        request = read_body(m.TokenRequest, body, "token request")
        assert isinstance(request, m.TokenRequest)
        if not signed_by(request.member, signature, signed_bytes(_CONTEXT, body)):
            raise ProtocolError("The request is not signed by the member that it names.")
        try:
            self._read_list()
        except InputError as error:
            _LOG.warning("members", extra={"reason": str(error)})
        if not self._books.execute("SELECT 1 FROM member WHERE key = ?", (request.member,)).fetchone():
            raise ProtocolError("The request is not by a registered member.")
        if not self._books.execute("SELECT 1 FROM game WHERE name = ?", (request.game,)).fetchone():
            raise ProtocolError("There is no such game.")
        if self._was_opened_twice(request.game):
            raise ProtocolError("The game was opened twice.")
        row = (request.game, request.member)
        found = self._token(*row)
        if found is None:
            # To sign takes milliseconds, which a member can have once in a game.
            signed = tokens.blind_sign(self._private(request.game), request.blinded)
            # The first request is the one that counts, also if two come at once.
            self._insert("token", (*row, request.blinded, signed))
            self._metrics.add("palmatch_tokens_total")
            found = self._token(*row)
        assert found is not None
        if found[0] != request.blinded:
            raise ProtocolError("This member has had its token for this game.")
        return m.TokenReply(blind_signature=found[1], now=int(self._clock() * 1000))

    def _insert(self, table: str, row: tuple[object, ...]) -> None:
        """Add a row, unless there is one of the same name."""
        try:
            self._books.execute(f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * len(row))})", row)
        except sqlite3.OperationalError as error:
            raise CannotWrite(f"{self._path}: cannot be written: {error}.") from None

    def _token(self, game: str, member: bytes) -> tuple[bytes, bytes] | None:
        """Return what a member had signed in a game, and the signature."""
        query = "SELECT blinded, signature FROM token WHERE game = ? AND member = ?"
        found: tuple[bytes, bytes] | None = self._books.execute(query, (game, member)).fetchone()
        return found

    def linked_token(self, game: str, key: bytes) -> bytes:
        """Return a token that was not blinded: for measurements, in which thousands are needed at once."""
        return tokens.signed(self._private(game), game, key)

    def forget(self, game: str) -> None:
        """Drop a game's key and journal, once no token of it can be used any more."""
        # On a full disk it stays in the journal, which does no harm.
        with suppress(sqlite3.OperationalError), self._books:
            self._books.execute("DELETE FROM token WHERE game = ?", (game,))
            self._books.execute("DELETE FROM game WHERE name = ?", (game,))
        self._keys.pop(game, None)

    def route(self) -> Route:
        """Return the HTTP endpoint `POST /token`: the signature's 64 bytes, then the request's body."""
        return Route("/token", self._respond, methods=["POST"])

    async def _respond(self, request: Request) -> Response:
        data = b""
        async for part in request.stream():
            data += part
            if len(data) > _LARGEST_REQUEST:
                return Response("The request is too large.", 413, _ANY_PAGE)
        try:
            reply = self.answer(data[m.SIGNATURE :], data[: m.SIGNATURE])
        except ProtocolError as error:
            _LOG.warning("refused", extra={"kind": "token", "reason": str(error)})
            return Response(str(error), 403, _ANY_PAGE)
        except CannotWrite as error:
            _LOG.error("no room", extra={"kind": "token", "reason": str(error)})
            return Response("The issuer has no room for its journal: try again later.", 503, _ANY_PAGE)
        return Response(body_of(reply), 200, _ANY_PAGE, "application/cbor")

    def _private(self, game: str) -> rsa.RSAPrivateKey:
        if game not in self._keys:
            with closing(self._books.execute("SELECT key FROM game WHERE name = ?", (game,))) as found:
                row = found.fetchone()
            if row is None:
                form = (serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
                self._insert("game", (game, tokens.new_key().private_bytes(*form)))
                row = self._books.execute("SELECT key FROM game WHERE name = ?", (game,)).fetchone()
            key = serialization.load_der_private_key(row[0], None)
            assert isinstance(key, rsa.RSAPrivateKey)
            self._keys[game] = key
        return self._keys[game]


def token_request(member: Signer, game: str, blinded: bytes) -> bytes:
    """Return what a member posts to the issuer."""
    body = body_of(m.TokenRequest(game=game, member=member.public, blinded=blinded))
    return member.sign(_CONTEXT, body) + body


def read_reply(data: bytes) -> m.TokenReply:
    """Return the issuer's answer."""
    reply = read_body(m.TokenReply, data, "token reply")
    assert isinstance(reply, m.TokenReply)
    return reply


class Announcer:
    """Publishes the issuer's key for the games to come, as the board opens one after the other.

    `signer_of` finds the issuer's lasting key that a newer trust file names.
    """

    def __init__(
        self,
        transport: Transport,
        issuer: Issuer,
        trusted: Trusted,
        signer_of: Callable[[bytes], Signer] | None = None,
    ) -> None:
        self.transport, self.issuer, self.trusted, self._signer_of = transport, issuer, trusted, signer_of
        self._announced: set[str] = set()
        self._tasks = Tasks()

    async def start(self) -> None:
        """Announce the games in the issuer's journal, and go on with every game that a board plans."""
        for name in self.issuer.games():
            await self.announce(name)
        await self.transport.subscribe("pm/1/+/planned", self._planned)
        await self.transport.subscribe("pm/1/+/open", self._opened)
        self.transport.on_connect(self._again)

    async def announce(self, game: str) -> None:
        """Announce the key of a game."""
        self._announced.add(game)
        while True:
            try:
                topic, packet = self.issuer.announcement(game)
                break
            except CannotWrite as error:
                _LOG.error("no room", extra={"game": game, "reason": str(error)})
                await asyncio.sleep(DISK_SECONDS)
        # Without a connection now, it is announced with the next one.
        with suppress(TransportError):
            await self.transport.publish(topic, packet)

    def follow(self) -> Trust:
        """Sign with the key that the operator names now, also what is announced and not opened yet."""
        trust = self.trusted.latest()
        if trust.issuer != self.issuer.signer.public and self._signer_of is not None:
            try:
                self.issuer.signer = self._signer_of(trust.issuer)
            except InputError as error:
                _LOG.error("issuer key", extra={"reason": str(error)})
                return trust
            for game in self._announced:
                series, number = number_of(game)
                if number > self.issuer.last_opened(series):
                    self._tasks.start(self.announce(game))
        return trust

    def _planned(self, where: str, packet: bytes) -> None:
        envelope = decode(where, packet)
        planned, game = self.follow().board_says(envelope, m.Planned), envelope.topic.game
        series, number = number_of(game)
        if planned.number != number or game in self._announced:
            return
        if number <= self.issuer.last_opened(series):
            _LOG.error("game planned again", extra={"game": game, "reason": "an older copy of the board's journal"})
            return
        self._tasks.start(self.announce(game))

    def _opened(self, where: str, packet: bytes) -> None:
        envelope = decode(where, packet)
        self.follow().opened(envelope)
        game = envelope.topic.game
        if not self.issuer.note_opening(game, envelope.hash):
            _LOG.error("game opened again", extra={"game": game, "reason": "an older copy of the board's journal"})
        series, number = number_of(game)
        self._tasks.start(self._forget(game_name(series, number - KEPT_GAMES)))

    def _again(self) -> None:
        """After a broker's restart: it may have lost the keys."""
        for name in self._announced:
            self._tasks.start(self.announce(name))

    async def _forget(self, game: str) -> None:
        """Drop the key of a game that is long over."""
        if game in self._announced:
            self._announced.discard(game)
            self.issuer.forget(game)
            with suppress(TransportError):
                await self.transport.clear(Topic(game, "issuer"))
