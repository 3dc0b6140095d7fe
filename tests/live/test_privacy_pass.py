"""Tokens against an implementation of Privacy Pass by others, from npm: as client, as issuer, and as verifier."""

from hashlib import sha256
from pathlib import Path

from cryptography.hazmat.primitives import serialization

from node_packages import Node, node_packages
from palmatch.live import tokens
from palmatch.live.keys import Signer

PROGRAM = Path(__file__).with_name("privacy_pass.mjs")


def pss_key(key):
    """The public key with the parameters of RSASSA-PSS, as a client of Privacy Pass is given it."""
    return tokens._PSS_KEY + tokens.public_der(key)[-tokens._KEY_BITS :]


def test_a_client_by_others_gets_the_token_of_a_device_from_this_issuer(issuer):
    der, one_time = tokens.public_der(issuer), Signer.fresh().public
    with Node(PROGRAM, node_packages()) as others:
        nonce, challenge = sha256(one_time).hexdigest(), tokens.challenge("game-7").hex()
        request = bytes.fromhex(others.ask(what="request", key=pss_key(issuer).hex(), challenge=challenge, nonce=nonce))
        assert request[:3] == b"\0\2" + tokens.key_id(der)[-1:]
        response = tokens.blind_sign(issuer, request[3:])
        token = bytes.fromhex(others.ask(what="finalize", response=response.hex()))
    assert tokens.is_valid(der, "game-7", one_time, token)
    assert not tokens.is_valid(der, "game-8", one_time, token)


def test_a_device_gets_its_token_from_an_issuer_by_others_who_find_it_valid(issuer):
    der, one_time = tokens.public_der(issuer), Signer.fresh().public
    pkcs8 = issuer.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    kept = tokens.request(der, "game-7", one_time)
    request = b"\0\2" + tokens.key_id(der)[-1:] + kept.blinded
    with Node(PROGRAM, node_packages()) as others:
        response = others.ask(what="issue", pkcs8=pkcs8.hex(), spki=der.hex(), request=request.hex())
        token = tokens.token_of(der, "game-7", one_time, kept, bytes.fromhex(response))
        assert others.ask(what="verify", spki=der.hex(), token=token.hex()) is True
        wrong = token[:5] + bytes([token[5] ^ 1]) + token[6:]
        assert others.ask(what="verify", spki=der.hex(), token=wrong.hex()) is False
        measured = tokens.signed(issuer, "game-7", one_time)
        assert others.ask(what="verify", spki=der.hex(), token=measured.hex()) is True
