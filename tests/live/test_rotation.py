"""Keys that are replaced while games go on: a game ends under those of its opening."""

import asyncio
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from live.examples import MESSAGES, PARTITION
from live.listening import clock
from palmatch.cli.live_services import fetch_over_tls
from palmatch.device import messages as m
from palmatch.device.ledger import Ledger, units_of
from palmatch.domains.mobility import Points
from palmatch.errors import InputError, ProtocolError, Refused
from palmatch.live.board import Board
from palmatch.live.codec import body_of, decode
from palmatch.live.issuer import Announcer, Issuer, read_reply, token_request
from palmatch.live.journal import Journal
from palmatch.live.keys import Signer, load_secret
from palmatch.live.resource import Arrival, Gateway
from palmatch.live.rules import Schedule
from palmatch.live.service import run_board
from palmatch.live.session import Device, MatchRequest
from palmatch.live.topics import Topic
from palmatch.live.trust import (
    TrustFile,
    key_of,
    keys_of,
    load_gateway,
    load_trust,
    publish_at,
    rotate,
    save_trust,
    write_keys,
)

NAMES = ("v3", "v4", "v5")
AT = [(40.7012, -73.9991), (40.7031, -73.9975)]
CARS = np.array([(40.7015, -73.9985), (40.7080, -73.9930), (40.7060, -73.9950)])
ADDRESS = "https://operator.example/trust.json"


@pytest.fixture
def keys(memory_folder):
    write_keys(memory_folder / "keys", PARTITION, NAMES, members=("ada", "bob"))
    publish_at(memory_folder / "keys", ADDRESS)
    return memory_folder / "keys"


def signed_opening(signer, joins_close):
    topic = Topic("g-1", "open")
    content = replace(MESSAGES["open"], partition=PARTITION, joins_close=int(joins_close))
    return decode(topic, signer.packet(topic, content))


async def test_board_and_issuer_get_new_keys_between_games_and_no_device_is_started_again(join, keys, memory_folder):
    """Over three games, with a gateway and devices that are given nothing but an address."""
    copies = [memory_folder / f"trust-{number}.json" for number in range(3)]
    for copy in copies:
        copy.write_bytes((keys / "trust.json").read_bytes())

    async def get(url):
        assert url == ADDRESS
        return (keys / "trust.json").read_bytes()

    trusted = TrustFile(keys / "trust.json")
    issuer = Issuer(memory_folder / "issuer.db", key_of(keys, "issuer", trusted.trust.issuer))
    issuer.follow(keys / "members.txt")
    await Announcer(await join("issuer"), issuer, trusted, partial(key_of, keys, "issuer")).start()
    arrivals: list[Arrival] = []
    gateway = Gateway(await join("resource", "fleet"), trusted, load_gateway(keys / "gateway.json"), arrivals.append)
    await gateway.start()
    journal = Journal(memory_folder / "board.db")
    old = key_of(keys, "board", trusted.trust.board)
    board = Board(await join("board"), old, journal, clock=clock, threads=False)
    finished: list[str] = []

    def between(name, _):
        finished.append(name)
        if len(finished) == 1:
            rotate(keys, ["board", "issuer"])

    async def live(number, name):
        own = memory_folder / name
        own.mkdir()
        member = Signer(load_secret(keys / f"member-{name}.key"))

        async def ask(game, blinded):
            request = token_request(member, game, blinded)
            return read_reply(body_of(issuer.answer(request[64:], request[:64]))).blind_signature

        transport, seen = await join(), list[str]()
        with Ledger(own / "ledger", agent=name, lifetime=units_of(20.0)) as ledger:
            device = Device(TrustFile(copies[number], get), own, ledger, ask, clock=clock)
            while len(seen) < 3:
                seen.append(await device.next_game(transport, 3000, seen))
                played, _ = await device.play(transport, seen[-1], MatchRequest(seen[-1], AT[number], 4.0))
                assert (played.answer, played.cut_off) == ("Accepted", False)
            return len(seen)

    schedule = Schedule("report", (0.0, 4.0), every=120, joining=40, preparing=1, slot=2)
    cars = Points("", NAMES, CARS[:, 0], CARS[:, 1], None, None, ())
    boards = run_board(
        board, trusted, lambda: cars, schedule, games=3, finished=between, keys=lambda: keys_of(keys, "board")
    )
    _, *games = await asyncio.gather(boards, *(live(number, name) for number, name in enumerate(("ada", "bob"))))
    assert games == [3, 3]
    assert len(arrivals) == 6
    # The names go on, and each game is signed by one key from its opening to its end.
    assert [name.rpartition("-")[2] for name in finished] == ["1", "2", "3"]
    assert len({name.rpartition("-")[0] for name in finished}) == 1
    new = load_trust(keys / "trust.json")
    assert new.board != old.public
    for name, key in zip(finished, (old.public, new.board, new.board), strict=True):
        trust = replace(new, board=key)
        assert all(trust.board_says(said, type(said.message)) for said in journal.said(name))
    assert load_trust(copies[0]).version == new.version
    issuer.close()
    journal.close()


def test_a_game_that_was_opened_under_a_key_that_was_replaced_goes_on_under_it_and_none_is_opened_later(keys):
    before = load_trust(keys / "trust.json")
    [old] = keys_of(keys, "board")
    new = rotate(keys, ["board"])
    assert (new.issuer, new.version) == (before.issuer, before.version + 1)
    until = new.former[0].until
    game = new.in_game(signed_opening(old, until))
    assert (game.board, game.issuer) == (before.board, before.issuer)
    # What comes after it is opened under the new key, and is understood.
    current = key_of(keys, "board", new.board)
    assert game.opened(signed_opening(current, until)).joins_close == until
    for wrong in (signed_opening(old, until + 1), signed_opening(Signer.fresh(), until)):
        with pytest.raises(ProtocolError, match="signature"):
            new.opened(wrong)


def test_an_issuer_that_was_replaced_is_believed_for_a_while_by_those_who_ask_for_a_token(keys):
    [old] = keys_of(keys, "issuer")
    new = rotate(keys, ["issuer"])
    topic = Topic("g-1", "issuer")
    envelope = decode(topic, old.packet(topic, m.IssuerKey(key=b"key")))
    assert new.issuer_says(envelope, new.former[0].until / 1000).key == b"key"
    for now in (None, new.former[0].until / 1000 + 1):
        with pytest.raises(ProtocolError, match="signature"):
            new.issuer_says(envelope, now)


def test_what_is_fetched_counts_only_if_it_is_newer_and_signed_by_the_same_operator(keys, tmp_path):
    own, served = tmp_path / "trust.json", tmp_path / "served.json"
    first = load_trust(keys / "trust.json")
    own.write_bytes((keys / "trust.json").read_bytes())
    operator, stranger = Signer(load_secret(keys / "operator.key")), Signer.fresh()

    async def get(_):
        return served.read_bytes()

    def fetched():
        trusted = TrustFile(own, get)
        asyncio.run(trusted.fetch())
        assert load_trust(own) == trusted.latest()
        return trusted.latest()

    save_trust(served, stranger, replace(first, version=9, operator=stranger.public))
    assert fetched() == first
    save_trust(served, operator, replace(first, version=first.version - 1))
    assert fetched() == first
    save_trust(served, operator, replace(first, version=9, partition=replace(PARTITION, spacing=50.0)))
    assert fetched() == first
    served.write_text("nonsense")
    assert fetched() == first
    save_trust(served, operator, replace(first, version=9))
    assert fetched().version == 9
    with pytest.raises(InputError, match="not encrypted"):
        asyncio.run(fetch_over_tls("http://operator.example/trust.json", tls=None))
    with pytest.raises(InputError, match="https://"):
        publish_at(keys, "http://operator.example/trust.json")


def test_another_operator_is_accepted_on_the_owners_word_alone_and_every_charge_is_kept(keys, tmp_path):
    write_keys(tmp_path / "new", PARTITION, NAMES)
    first, second = load_trust(keys / "trust.json"), load_trust(tmp_path / "new" / "trust.json")

    async def ask(_, __):
        raise AssertionError("A token was asked for.")

    with Ledger(tmp_path / "ledger", agent="ada", lifetime=units_of(3.0)) as ledger:
        Device(first, tmp_path, ledger, ask).check_trust()
        ledger.charge(units_of(1.0), matching="g", purpose="report")
        device = Device(second, tmp_path, ledger, ask)
        with pytest.raises(Refused, match="another operator"):
            device.check_trust()
        device.accept_operator()
        assert device.check_trust() == second
        assert ledger.spent() == units_of(1.0)
        with pytest.raises(Refused, match="another operator"):
            Device(first, tmp_path, ledger, ask).check_trust()
