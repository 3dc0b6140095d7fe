import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from live.examples import MESSAGES, PARTITION, TAG, topic
from palmatch.device import messages as m
from palmatch.errors import InputError, ProtocolError
from palmatch.live import tokens
from palmatch.live.codec import Envelope, decode
from palmatch.live.keys import (
    Opener,
    Signer,
    load_secret,
    open_handover,
    reservation_code,
    save_secret,
    seal,
    seal_position,
    seal_secret,
    tag_of,
    verify,
)
from palmatch.live.topics import Topic
from palmatch.live.trust import Trust, certificate, load_trust, save_trust

VECTORS = Path(__file__).parent / "vectors"
VECTOR = json.loads((VECTORS / "rfc9474.json").read_text())
PRIVACY_PASS = json.loads((VECTORS / "rfc9578.json").read_text())


def number(name):
    return int(VECTOR[name], 16)


def rfc_key():
    p, q, d = number("p"), number("q"), number("d")
    numbers = rsa.RSAPrivateNumbers(
        p, q, d, d % (p - 1), d % (q - 1), pow(q, -1, p), rsa.RSAPublicNumbers(number("e"), number("n"))
    )
    return numbers.private_key()


def test_blind_tokens_give_the_vectors_of_the_rfc():
    key = rfc_key()
    data = {name: bytes.fromhex(VECTOR[name]) for name in ("msg", "salt", "blinded_msg", "blind_sig", "sig")}
    blinded = tokens.blind(key.public_key(), data["msg"], data["salt"], number("inv"))
    assert blinded == data["blinded_msg"]
    assert tokens.blind_sign(key, blinded) == data["blind_sig"]
    assert tokens.finalize(key.public_key(), data["blind_sig"], number("inv")) == data["sig"]
    assert tokens.verifies(key.public_key(), data["msg"], data["sig"])
    assert not tokens.verifies(key.public_key(), data["msg"] + b"x", data["sig"])


@pytest.mark.parametrize("vector", PRIVACY_PASS["vectors"])
def test_privacy_pass_tokens_give_the_vectors_of_the_rfc(vector):
    key = serialization.load_pem_private_key(bytes.fromhex(PRIVACY_PASS["skS"]), None)
    assert isinstance(key, rsa.RSAPrivateKey)
    data = {name: bytes.fromhex(value) for name, value in vector.items()}
    public, identifier = key.public_key(), tokens.key_id(tokens.public_der(key))
    assert identifier == sha256(bytes.fromhex(PRIVACY_PASS["pkS"])).digest()
    text = tokens.authenticator_input(data["nonce"], data["token_challenge"], identifier)
    inverse = pow(int.from_bytes(data["blind"]), -1, public.public_numbers().n)
    blinded = tokens.blind(public, text, data["salt"], inverse)
    # The request has the type and the last byte of the key's id before it.
    assert b"\0\2" + identifier[-1:] + blinded == data["token_request"]
    assert tokens.blind_sign(key, blinded) == data["token_response"]
    assert text + tokens.finalize(public, data["token_response"], inverse) == data["token"]


def test_the_challenge_of_a_game_has_it_as_redemption_context():
    """By its structure: type, name of the issuer, context, no origin."""
    expected = "0002" + "0008" + b"palmatch".hex() + "20" + sha256(b"game-7").hexdigest() + "0000"
    assert tokens.challenge("game-7").hex() == expected


def test_a_token_is_good_for_one_key_in_one_game(issuer):
    der, key = tokens.public_der(issuer), Signer.fresh().public
    kept = tokens.request(der, "g", key)
    token = tokens.token_of(der, "g", key, kept, tokens.blind_sign(issuer, kept.blinded))
    assert tokens.is_valid(der, "g", key, token)
    assert not tokens.is_valid(der, "h", key, token)
    assert not tokens.is_valid(der, "g", Signer.fresh().public, token)
    assert not tokens.is_valid(tokens.public_der(tokens.new_key()), "g", key, token)


def test_the_issuer_cannot_tell_which_request_a_token_came_from(issuer):
    """For every pair of a request and a token there is a factor that explains it: all pairings are possible."""
    der, n, e = tokens.public_der(issuer), issuer.public_key().public_numbers().n, 65537
    keys = [Signer.fresh().public for _ in range(2)]
    kept = [tokens.request(der, "g", key) for key in keys]
    assert kept[0].blinded != kept[1].blinded
    for request in kept:
        for key, own in zip(keys, kept, strict=True):
            token = tokens.token_of(der, "g", key, own, tokens.blind_sign(issuer, own.blinded))
            # The factor r with blinded = encoded · r^e, from the signature alone: blinded^d = signature · r.
            blind_signature = int.from_bytes(tokens.blind_sign(issuer, request.blinded))
            factor = blind_signature * pow(int.from_bytes(token[-256:]), -1, n) % n
            encoded = pow(int.from_bytes(token[-256:]), e, n)
            assert encoded * pow(factor, e, n) % n == int.from_bytes(request.blinded)


def test_a_cheating_issuer_is_noticed(issuer):
    der, key = tokens.public_der(issuer), Signer.fresh().public
    kept = tokens.request(der, "g", key)
    good = tokens.blind_sign(issuer, kept.blinded)
    for answer in (good[:-1] + bytes([good[-1] ^ 1]), bytes(256), b""):
        with pytest.raises(ProtocolError):
            tokens.token_of(der, "g", key, kept, answer)


def test_the_extra_for_fast_tokens_gives_the_same_signatures(issuer, monkeypatch):
    gmpy2 = pytest.importorskip("gmpy2", reason="needs the extra fast-tokens")
    asked = [tokens.request(tokens.public_der(issuer), f"{n}", bytes(32)).blinded for n in range(20)]
    signed = []
    for arithmetic in (pow, gmpy2.powmod_sec):
        monkeypatch.setattr(tokens, "powmod_sec", arithmetic)
        signed.append([tokens.blind_sign(issuer, one) for one in asked])
        # The check of what was put together stands behind either.
        monkeypatch.setattr(tokens, "powmod_sec", lambda *given, inner=arithmetic: inner(*given) ^ 1)
        with pytest.raises(ProtocolError, match="nothing is given out"):
            tokens.blind_sign(issuer, asked[0])
    assert signed[0] == signed[1]


def test_a_signature_that_an_error_made_wrong_is_not_given_out(issuer, monkeypatch):
    """One wrong half of the Chinese remainder theorem would give the key away."""
    power = tokens._power
    asked = tokens.request(tokens.public_der(issuer), "g", bytes(32))
    with monkeypatch.context() as patch:
        patch.setattr(tokens, "_power", lambda base, private: power(base, private) ^ 1)
        with pytest.raises(ProtocolError, match="nothing is given out"):
            tokens.blind_sign(issuer, asked.blinded)


def test_an_unusual_issuer_key_is_refused():
    small = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    odd = rsa.generate_private_key(public_exponent=3, key_size=2048)
    for der in (tokens.public_der(small), tokens.public_der(odd), b"no key"):
        with pytest.raises(ProtocolError):
            tokens.read_public(der)


def signed(signer, kind="report"):
    return decode(topic(kind), signer.packet(topic(kind), MESSAGES[kind]))


def test_a_signature_holds_for_its_key_its_bytes_and_its_topic():
    signer = Signer.fresh()
    good = signed(signer)
    assert verify(good, signer.public) is good
    other_game = Envelope(Topic("evening", "report"), good.message, good.body, good.signature)
    other_body = Envelope(good.topic, good.message, good.body + b" ", good.signature)
    for envelope, key in ((good, Signer.fresh().public), (other_game, signer.public), (other_body, signer.public)):
        with pytest.raises(ProtocolError, match="signature"):
            verify(envelope, key)
    with pytest.raises(ProtocolError):
        verify(good, b"short")


def test_secrets_do_not_show_up_in_a_representation():
    signer, opener = Signer.fresh(), Opener.fresh()
    assert str(signer.secret) not in repr(signer)
    assert str(opener.secret) not in repr(opener)
    assert "inverse" not in repr(tokens.Blinded(b"", 5))


def test_a_tag_depends_on_game_and_key():
    key = Signer.fresh().public
    assert len({tag_of("g", key), tag_of("h", key), tag_of("g", Signer.fresh().public)}) == 3
    assert len(tag_of("g", key)) == 8


HANDOVER = topic("handover")


def test_only_the_resource_reads_a_position_and_all_have_one_size():
    opener = Opener.fresh()
    sealed = seal_position(opener.public, HANDOVER, TAG, 40.75, -73.98)
    assert open_handover(opener, HANDOVER, TAG, sealed) == (40.75, -73.98)
    assert sealed != seal_position(opener.public, HANDOVER, TAG, 40.75, -73.98)
    assert {len(seal(opener.public, HANDOVER, TAG, bytes(size))) for size in range(96)} == {len(sealed)}
    assert len(sealed) <= 256
    changed = bytes([sealed[0] ^ 1]) + sealed[1:]
    for who, where, tag, what in (
        (Opener.fresh(), HANDOVER, TAG, sealed),
        (opener, Topic("evening", "handover", "v1"), TAG, sealed),
        (opener, HANDOVER, b"12345678", sealed),
        (opener, HANDOVER, TAG, changed),
        (opener, HANDOVER, TAG, b""),
    ):
        with pytest.raises(ProtocolError):
            open_handover(who, where, tag, what)


def test_both_sides_derive_a_code_that_is_good_for_one_resource_one_tag_and_one_game():
    opener, secret = Opener.fresh(), bytes(range(16))
    sealed = seal_secret(opener.public, HANDOVER, TAG, secret)
    assert len(sealed) == len(seal_position(opener.public, HANDOVER, TAG, 40.75, -73.98))
    code = reservation_code(secret, HANDOVER, TAG)
    assert open_handover(opener, HANDOVER, TAG, sealed) == code
    # By another way: RFC 2104 and RFC 4648, written out.
    key, text = secret.ljust(64, b"\0"), b"palmatch/2\n" + str(HANDOVER).encode() + b"\nreservation of " + TAG
    inner = sha256(bytes(byte ^ 0x36 for byte in key) + text).digest()
    found = int.from_bytes(sha256(bytes(byte ^ 0x5C for byte in key) + inner).digest()[:5])
    letters = "".join("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[found >> shift & 31] for shift in range(35, -1, -5))
    assert code == f"{letters[:4]}-{letters[4:]}"
    others = [
        reservation_code(bytes(16), HANDOVER, TAG),
        reservation_code(secret, Topic(HANDOVER.game, "handover", "v2"), TAG),
        reservation_code(secret, Topic("evening", "handover", HANDOVER.name), TAG),
        reservation_code(secret, HANDOVER, b"12345678"),
    ]
    assert len({code, *others}) == 5


def test_what_is_no_position_is_refused():
    opener = Opener.fresh()
    for text in (b"", bytes(16), b"\0" + b"\xff" * 16, b"\1" + bytes(15), b"\2" + bytes(16)):
        with pytest.raises(ProtocolError, match="neither a position"):
            open_handover(opener, HANDOVER, TAG, seal(opener.public, HANDOVER, TAG, text))
    with pytest.raises(ProtocolError):
        seal(opener.public, HANDOVER, TAG, bytes(96))
    with pytest.raises(ProtocolError, match="usable"):
        seal(bytes(32), HANDOVER, TAG, b"to a key of small order")


@pytest.fixture
def parties():
    return {name: Signer.fresh() for name in ("operator", "board", "issuer")}


def trust_in(parties):
    return Trust(
        version=1, until=2**49, **{name: signer.public for name, signer in parties.items()}, partition=PARTITION
    )


def test_a_trust_file_is_read_back_and_a_changed_one_is_not(tmp_path, parties):
    trust, path = trust_in(parties), tmp_path / "trust.json"
    save_trust(path, parties["operator"], trust)
    assert load_trust(path) == load_trust(path, parties["operator"].public) == trust
    text = path.read_text()
    path.write_text(text.replace("1000.0", "999.0"))
    with pytest.raises(InputError, match="signature does not fit"):
        load_trust(path)
    for bad in ("", "{}", text.replace("edge", "side")):
        path.write_text(bad)
        with pytest.raises(InputError, match="not a trust file"):
            load_trust(path)
    path.write_text(text)
    with pytest.raises(InputError, match="another operator"):
        load_trust(path, Signer.fresh().public)
    with pytest.raises(InputError, match="another operator"):
        save_trust(path, Signer.fresh(), trust)


def test_a_shifted_partition_is_refused(parties):
    trust = trust_in(parties)
    opening = MESSAGES["open"]
    assert isinstance(opening, m.Open)
    assert trust.opened(decode(topic("open"), parties["board"].packet(topic("open"), opening))) == opening
    for change in ({"edge": 999.0}, {"origin": (40.7, -74.001)}, {"spacing": 50.0}):
        shifted = replace(opening, partition=replace(PARTITION, **change))
        with pytest.raises(ProtocolError, match="partition"):
            trust.opened(decode(topic("open"), parties["board"].packet(topic("open"), shifted)))
    with pytest.raises(ProtocolError, match="signature"):
        trust.opened(decode(topic("open"), parties["issuer"].packet(topic("open"), opening)))


def test_a_resource_key_counts_on_the_operators_word_only(parties):
    trust, content = trust_in(parties), MESSAGES["resource"]
    assert isinstance(content, m.Certificate)
    good = certificate(parties["operator"], "morning", content)
    assert trust.certified(decode(topic("resource"), good), now=0) == content
    # The operator's signature is the same in every game.
    other_day = Topic("evening", "resource", "v1")
    assert trust.certified(decode(other_day, good), now=0) == content
    for wrong in (
        decode(topic("resource"), certificate(parties["board"], "morning", content)),
        decode(topic("resource"), parties["operator"].packet(topic("resource"), content)),
        decode(Topic("morning", "resource", "v2"), good),
    ):
        with pytest.raises(ProtocolError):
            trust.certified(wrong, now=0)
    with pytest.raises(ProtocolError, match="expired"):
        trust.certified(decode(topic("resource"), good), now=content.until + 1)


def test_a_secret_is_kept_from_others_and_never_overwritten(tmp_path):
    path, secret = tmp_path / "key", Signer.fresh().secret
    save_secret(path, secret)
    assert load_secret(path) == secret
    with pytest.raises(InputError, match="never overwritten"):
        save_secret(path, secret)
    for mode in (0o644, 0o640, 0o620, 0o604):
        path.chmod(mode)
        with pytest.raises(InputError, match="chmod 600"):
            load_secret(path)
    path.chmod(0o600)
    path.write_text("no key")
    with pytest.raises(InputError, match="64 hexadecimal"):
        load_secret(path)
