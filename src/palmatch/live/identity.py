"""What a device takes part in one game with: a one-time key and its token, kept so that a restart goes on as the same.

Key and blinding are on the disk before the issuer is asked, and the token before it is used. A device that dies in
between asks again with the same blinded message and gets the same answer; it never has two identities in one game.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from palmatch.data.whole import write_whole
from palmatch.errors import InputError
from palmatch.live import messages as m
from palmatch.live import tokens
from palmatch.live.keys import Signer, tag_of
from palmatch.live.topics import segment

Obtain = Callable[[bytes], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class Identity:
    """A one-time key and its token."""

    signer: Signer
    token: m.Token

    def tag(self, game: str) -> bytes:
        """Return the tag of the key."""
        return tag_of(game, self.signer.public)


class _Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is in the file; the blinding is gone once there is a token."""

    secret: bytes
    issuer: bytes
    prefix: bytes
    blinded: bytes
    inverse: str
    token: m.Token | None = None


async def identity(folder: Path, issuer: bytes, game: str, obtain: Obtain, *, signer: Signer | None = None) -> Identity:
    """Return this device's identity in a game; `obtain` takes a blinded message to the issuer and brings the answer.

    The one-time key is fresh; only a simulation gives a `signer`.
    """
    path = folder / f"{segment(game)}.identity"
    kept = _read(path)
    if kept is not None and kept.issuer != issuer:
        raise InputError(f"{path}: found an identity from another issuer key of this game; do not play.")
    if kept is None:
        signer = signer or Signer.fresh()
        blinded = tokens.request(issuer, game, signer.public)
        kept = _Kept(signer.secret, issuer, blinded.prefix, blinded.blinded, f"{blinded.inverse:x}")
        write_whole(path, msgspec.json.encode(kept), private=True)
    own, token = Signer(kept.secret), kept.token
    if token is None:
        blinded = tokens.Blinded(kept.prefix, kept.blinded, int(kept.inverse, 16))
        token = tokens.token_of(issuer, game, own.public, blinded, await obtain(kept.blinded))
        # Without the blinding the file does not link the token to the request.
        rest = _Kept(kept.secret, issuer, b"", b"", "", token)
        write_whole(path, msgspec.json.encode(rest), private=True)
    return Identity(own, token)


def keep(folder: Path, issuer: bytes, game: str, own: Identity) -> None:
    """Write the file of a device that has had its token."""
    kept = _Kept(own.signer.secret, issuer, b"", b"", "", own.token)
    write_whole(folder / f"{segment(game)}.identity", msgspec.json.encode(kept), private=True)


def forget(folder: Path, game: str) -> None:
    """Drop the identity of a game that is over: whoever gets hold of it could link its owner to the game's traffic."""
    (folder / f"{segment(game)}.identity").unlink(missing_ok=True)


def forget_older(folder: Path, than: float) -> None:
    """Drop the identities that were last written before a time of day: what they held can no longer be cancelled."""
    for path in folder.glob("*.identity"):
        with suppress(FileNotFoundError):
            if path.stat().st_mtime < than:
                path.unlink()


def _read(path: Path) -> _Kept | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Kept)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError):
        raise InputError(f"{path}: cannot be read as a device's identity; remove it to take part anew.") from None
