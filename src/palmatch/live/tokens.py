"""Privacy Pass tokens of type 0x0002 (RFC 9578): blind RSA signatures, RSABSSA-SHA384-PSS-Deterministic (RFC 9474).

Each game has a key of its own. The nonce of a token is the SHA-256 of a one-time key, and the redemption context that
of the game's name: a token is good for one device in one game. Names follow RFC 9474, section 4, and RFC 9577.

A device's identity in a game is such a key with its token. Key and blinding are on the disk before the issuer is asked,
and the token before it is used: a device that dies in between asks again with the same blinded message, gets the same
answer, and never has two identities in one game.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from math import gcd
from pathlib import Path

import msgspec
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from palmatch.atomic import write_atomic
from palmatch.errors import InputError, ProtocolError
from palmatch.live.keys import Signer, tag_of
from palmatch.live.topics import segment

try:
    # The extra fast-tokens: five times as fast, and in a time that does not depend on the exponent.
    from gmpy2 import powmod_sec
except ImportError:
    powmod_sec = pow

BITS = 2048

# The token type, and the name of the issuer in a challenge: the key, which is that of one game, says whose it is.
_TYPE, _ISSUER = b"\0\2", b"palmatch"
_HASH = hashes.SHA384()
_DIGEST = 48
# SubjectPublicKeyInfo of RSA-2048 with RSASSA-PSS (SHA-384, MGF1 with SHA-384, salts of 48 bytes), up to the bit string
# of the key, which ends it (RFC 9578, section 6.5): WebCrypto reads keys without these parameters only.
_PSS_KEY = bytes.fromhex(
    "30820152303d06092a864886f70d01010a3030a00d300b0609608648016503040202"
    "a11a301806092a864886f70d010108300b0609608648016503040202a203020130"
)
_KEY_BITS = 275


@dataclass(frozen=True, slots=True)
class Blinded:
    """What a device keeps while the issuer signs: what takes the blinding away."""

    blinded: bytes
    inverse: int = field(repr=False)


def new_key() -> rsa.RSAPrivateKey:
    """Make the issuer's key for one game."""
    return rsa.generate_private_key(public_exponent=65537, key_size=BITS)


def public_der(key: rsa.RSAPrivateKey) -> bytes:
    """Return the public key as the messages carry it (DER, SubjectPublicKeyInfo)."""
    return key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


@lru_cache(maxsize=16)
def read_public(der: bytes) -> rsa.RSAPublicKey:
    """Read a public key; a size or an exponent that could tell devices apart by its token is refused."""
    try:
        key = serialization.load_der_public_key(der)
    except (ValueError, UnsupportedAlgorithm):
        raise ProtocolError("The issuer's key is not a public key in DER.") from None
    if not isinstance(key, rsa.RSAPublicKey) or key.key_size != BITS or key.public_numbers().e != 65537:
        raise ProtocolError(f"Expected an issuer key RSA-{BITS} with exponent 65537.")
    return key


def challenge(game: str) -> bytes:
    """TokenChallenge (RFC 9577, section 2.1): type, issuer, the game as redemption context, no origin."""
    context = hashlib.sha256(game.encode()).digest()
    return _TYPE + len(_ISSUER).to_bytes(2) + _ISSUER + len(context).to_bytes(1) + context + bytes(2)


@lru_cache(maxsize=16)
def key_id(issuer: bytes) -> bytes:
    """SHA-256 of the issuer's key with its RSASSA-PSS parameters (RFC 9578, section 6.5)."""
    plain = read_public(issuer).public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return hashlib.sha256(_PSS_KEY + plain[-_KEY_BITS:]).digest()


def authenticator_input(nonce: bytes, challenged: bytes, identifier: bytes) -> bytes:
    """AuthenticatorInput (RFC 9577, section 2.2): type, nonce, SHA-256 of the challenge, key id."""
    return _TYPE + nonce + hashlib.sha256(challenged).digest() + identifier


def token_input(issuer: bytes, game: str, key: bytes) -> bytes:
    """Return what the issuer signs for a one-time key in a game."""
    return authenticator_input(hashlib.sha256(key).digest(), challenge(game), key_id(issuer))


def request(issuer: bytes, game: str, key: bytes) -> Blinded:
    """Blind a one-time key: `blinded` goes to the issuer, the rest stays."""
    public = read_public(issuer)
    modulus = public.public_numbers().n
    while gcd(inverse := secrets.randbelow(modulus - 1) + 1, modulus) != 1:
        continue
    return Blinded(blind(public, token_input(issuer, game, key), secrets.token_bytes(_DIGEST), inverse), inverse)


def token_of(issuer: bytes, game: str, key: bytes, kept: Blinded, blind_signature: bytes) -> bytes:
    """Take the blinding away and check what the issuer signed; the token is what was signed and the signature."""
    token = token_input(issuer, game, key) + finalize(read_public(issuer), blind_signature, kept.inverse)
    if not is_valid(issuer, game, key, token):
        raise ProtocolError("The issuer's signature does not fit the token that was asked for.")
    return token


def signed(key: rsa.RSAPrivateKey, game: str, public: bytes) -> bytes:
    """Return a token that the issuer signs without a blinding, so that it could link it: for measurements only."""
    text = token_input(public_der(key), game, public)
    return text + key.sign(text, padding.PSS(padding.MGF1(_HASH), _DIGEST), _HASH)


def is_valid(issuer: bytes, game: str, key: bytes, token: bytes) -> bool:
    """Tell whether this is the issuer's token for this one-time key in this game."""
    text = token_input(issuer, game, key)
    return token[: len(text)] == text and verifies(read_public(issuer), text, token[len(text) :])


def blind(public: rsa.RSAPublicKey, prepared: bytes, salt: bytes, inverse: int) -> bytes:
    """Blind: encode the message and multiply it by a random factor, whose inverse modulo n is given."""
    numbers = public.public_numbers()
    encoded = int.from_bytes(_pss_encoded(prepared, salt, numbers.n.bit_length() - 1))
    if gcd(encoded, numbers.n) != 1:
        raise ProtocolError("The message is not usable with this issuer's key.")
    factor = pow(pow(inverse, -1, numbers.n), numbers.e, numbers.n)
    return (encoded * factor % numbers.n).to_bytes(_width(numbers.n))


def blind_sign(key: rsa.RSAPrivateKey, blinded: bytes) -> bytes:
    """BlindSign: RSASP1 on the blinded message, itself blinded, so that its time tells nothing about the key."""
    private = key.private_numbers()
    n, e = private.public_numbers.n, private.public_numbers.e
    message = int.from_bytes(blinded)
    if len(blinded) != _width(n) or message >= n:
        raise ProtocolError("Expected a blinded message below the key's modulus.")
    mask = secrets.randbelow(n - 2) + 2
    signature = _power(message * pow(mask, e, n) % n, private) * pow(mask, -1, n) % n
    if pow(signature, e, n) != message:
        raise ProtocolError("The signature failed; nothing is given out.")
    return signature.to_bytes(_width(n))


def _power(base: int, private: rsa.RSAPrivateNumbers) -> int:
    """Return base^d mod n by the Chinese remainder theorem (RFC 8017, section 5.1.2), four times as fast."""
    first = int(powmod_sec(base % private.p, private.dmp1, private.p))
    second = int(powmod_sec(base % private.q, private.dmq1, private.q))
    return second + private.q * ((first - second) * private.iqmp % private.p)


def finalize(public: rsa.RSAPublicKey, blind_signature: bytes, inverse: int) -> bytes:
    """Take the factor away; the result is to be verified."""
    n = public.public_numbers().n
    if len(blind_signature) != _width(n):
        raise ProtocolError("The issuer's signature has the wrong size.")
    return (int.from_bytes(blind_signature) * inverse % n).to_bytes(_width(n))


def verifies(public: rsa.RSAPublicKey, prepared: bytes, signature: bytes) -> bool:
    """Tell whether this is an RSASSA-PSS signature of the message (RFC 8017, section 8.1.2)."""
    try:
        public.verify(signature, prepared, padding.PSS(padding.MGF1(_HASH), _DIGEST), _HASH)
    except (InvalidSignature, ValueError):
        return False
    return True


def _pss_encoded(message: bytes, salt: bytes, bits: int) -> bytes:
    """EMSA-PSS-ENCODE (RFC 8017, section 9.1.1)."""
    size = -(-bits // 8)
    digest = hashlib.sha384(bytes(8) + hashlib.sha384(message).digest() + salt).digest()
    data = bytes(size - len(salt) - _DIGEST - 2) + b"\x01" + salt
    mask = b"".join(
        hashlib.sha384(digest + counter.to_bytes(4)).digest() for counter in range(-(-len(data) // _DIGEST))
    )
    masked = bytearray(a ^ b for a, b in zip(data, mask, strict=False))
    masked[0] &= 0xFF >> (8 * size - bits)
    return bytes(masked) + digest + b"\xbc"


def _width(modulus: int) -> int:
    return -(-modulus.bit_length() // 8)


Obtain = Callable[[bytes], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class Identity:
    """A one-time key and its token."""

    signer: Signer
    token: bytes

    def tag(self, game: str) -> bytes:
        """Return the tag of the key."""
        return tag_of(game, self.signer.public)


class _Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is in the file; the blinding is gone once there is a token."""

    secret: bytes
    issuer: bytes
    blinded: bytes
    inverse: str
    token: bytes | None = None


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
        blinded = request(issuer, game, signer.public)
        kept = _Kept(signer.secret, issuer, blinded.blinded, f"{blinded.inverse:x}")
        write_atomic(path, msgspec.json.encode(kept), private=True)
    own, token = Signer(kept.secret), kept.token
    if token is None:
        blinded = Blinded(kept.blinded, int(kept.inverse, 16))
        token = token_of(issuer, game, own.public, blinded, await obtain(kept.blinded))
        # Without the blinding the file does not link the token to the request.
        keep(folder, issuer, game, Identity(own, token))
    return Identity(own, token)


def keep(folder: Path, issuer: bytes, game: str, own: Identity) -> None:
    """Write the file of a device that has had its token."""
    kept = _Kept(own.signer.secret, issuer, b"", "", own.token)
    write_atomic(folder / f"{segment(game)}.identity", msgspec.json.encode(kept), private=True)


def is_known(folder: Path, game: str) -> bool:
    """Tell whether this device has an identity in a game, or has begun to get one."""
    return (folder / f"{segment(game)}.identity").exists()


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
