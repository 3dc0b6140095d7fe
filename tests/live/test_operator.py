"""Keys of a service that runs: resources and members that come later, and those that are removed."""

import asyncio
import time
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from live.buses import certified as certified_packet
from live.conftest import MOSQUITTO, Broker, free_port
from live.examples import PARTITION
from live.memory import MemoryBroker, run_virtual
from palmatch.cli import live_services
from palmatch.device import messages as m
from palmatch.device.ledger import Ledger, units_of
from palmatch.errors import InputError, ProtocolError, Refused, TransportError
from palmatch.live import tokens
from palmatch.live.codec import decode
from palmatch.live.issuer import Issuer, token_request
from palmatch.live.keys import Signer, load_secret
from palmatch.live.mosquitto import Mosquitto
from palmatch.live.service import Reservations
from palmatch.live.session import Device
from palmatch.live.topics import Topic
from palmatch.live.transport import Access, Credentials, Hub, connect
from palmatch.live.transport.exchange import hello
from palmatch.live.trust import (
    TrustFile,
    add_members,
    certificates_of,
    certify,
    load_gateway,
    load_trust,
    remove_members,
    remove_resources,
    save_trust,
    write_keys,
)

DAY = 24 * 3600 * 1000
NAMES = ("v1", "v2", "s#1", "s#2")


@pytest.fixture
def folder(tmp_path):
    write_keys(tmp_path / "keys", PARTITION, NAMES, members=("alice", "bob"))
    return tmp_path / "keys"


def accepts(trust, name, packet):
    """Whether a device with this trust file would seal its position to a resource."""
    try:
        trust.certified(decode(Topic("g", "resource", name), packet), int(time.time() * 1000))
    except ProtocolError:
        return False
    return True


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_resource_that_is_certified_later_has_the_gateways_keys_and_nothing_else_changes(folder):
    before, old = contents(folder), load_gateway(folder / "gateway.json")
    assert certify(folder, ["v1", "v9"], 366 * DAY) == ["v9"]
    assert certify(folder, ["v1", "v9"], 366 * DAY) == []
    after, new = contents(folder), load_gateway(folder / "gateway.json")
    assert {name for name in after if after[name] != before.get(name)} == {"gateway.json"}
    assert (new.signing, new.sealing) == (old.signing, old.sealing)
    assert new.certificates == {**old.certificates, "v9": new.certificates["v9"]}
    assert (folder / "gateway.json").stat().st_mode & 0o077 == 0
    assert accepts(load_trust(folder / "trust.json"), "v9", new.certificates["v9"])


def test_a_certificate_that_ends_soon_is_renewed(folder):
    assert certify(folder, ["v9"], 30 * DAY) == ["v9"]
    ends = certificates_of(load_gateway(folder / "gateway.json"))["v9"].until
    assert certify(folder, ["v9"], 366 * DAY) == ["v9"]
    assert certificates_of(load_gateway(folder / "gateway.json"))["v9"].until > ends


def test_a_removed_resource_is_refused_by_devices_with_the_new_trust_file_alone(folder):
    old, packets = load_trust(folder / "trust.json"), load_gateway(folder / "gateway.json").certificates
    assert remove_resources(folder, ["v1", "s"]) == ["v1", "s#1", "s#2"]
    new = load_trust(folder / "trust.json", old.operator)
    assert {name for name in NAMES if accepts(new, name, packets[name])} == {"v2"}
    # What the documentation says a removal does not do.
    assert all(accepts(old, name, packets[name]) for name in NAMES)
    assert list(load_gateway(folder / "gateway.json").certificates) == ["v2"]
    # A further removal leaves the first one in force, and the rest of the file as it was.
    remove_resources(folder, ["v2"])
    last = load_trust(folder / "trust.json", old.operator)
    assert not any(accepts(last, name, packets[name]) for name in NAMES)
    assert replace(last, removed=old.removed, version=old.version, until=old.until) == old


def test_a_resource_that_was_removed_can_be_certified_again_and_its_old_certificate_stays_refused(folder):
    packets = load_gateway(folder / "gateway.json").certificates
    remove_resources(folder, ["v1"])
    with pytest.raises(InputError, match="valid for longer"):
        certify(folder, ["v1"], 30 * DAY)
    # With the keys of a new gateway, as after a theft of the old one's.
    (folder / "gateway.json").unlink()
    certify(folder, ["v1"], 400 * DAY)
    trust, new = load_trust(folder / "trust.json"), load_gateway(folder / "gateway.json")
    assert accepts(trust, "v1", new.certificates["v1"])
    assert not accepts(trust, "v1", packets["v1"])


def test_a_change_without_the_operators_key_or_of_what_is_not_there_changes_nothing(folder):
    before = contents(folder)
    for change in (
        lambda: remove_resources(folder, ["v2", "nowhere"]),
        lambda: remove_members(folder, ["alice", "carol"]),
        lambda: remove_members(folder, ["alice", "0" * 64]),
    ):
        with pytest.raises(InputError):
            change()
    assert contents(folder) == before
    (folder / "operator.key").rename(folder.parent / "offline.key")
    for change in (lambda: certify(folder, ["v9"], DAY), lambda: remove_resources(folder, ["v1"])):
        with pytest.raises(InputError, match="operator's key is kept"):
            change()
    # A key that is not the operator's signs nothing either.
    (folder / "operator.key").write_text(Signer.fresh().secret.hex())
    (folder / "operator.key").chmod(0o600)
    with pytest.raises(InputError, match="another operator"):
        remove_resources(folder, ["v1"])


def test_a_service_reads_what_was_changed_and_takes_neither_an_older_trust_file_nor_another_partition(folder, caplog):
    trusted = TrustFile(folder / "trust.json")
    first = trusted.latest()
    remove_resources(folder, ["v1"])
    assert list(trusted.latest().removals) == ["v1"]
    operator = Signer(load_secret(folder / "operator.key"))
    for wrong in (replace(first, version=2), replace(first, version=3, partition=replace(PARTITION, edge=500.0))):
        save_trust(folder / "trust.json", operator, wrong)
        assert trusted.latest().board == first.board
        assert list(trusted.latest().removals) == ["v1"]
    # An older file that was put back.
    save_trust(folder / "trust.json", operator, first)
    assert list(trusted.latest().removals) == ["v1"]
    assert list(trusted.latest().removals) == ["v1"]
    (folder / "trust.json").write_text("nonsense")
    assert list(trusted.latest().removals) == ["v1"]
    assert caplog.messages.count("trust file") == 4


async def test_a_board_offers_a_removed_resource_again_once_it_has_shown_a_later_certificate(folder):
    packets = load_gateway(folder / "gateway.json").certificates
    remove_resources(folder, ["v1"])
    certify(folder, ["v1"], 400 * DAY)
    later = load_gateway(folder / "gateway.json").certificates["v1"]

    board = MemoryBroker().connect(Access("board"))
    holds = Reservations(board, load_trust(folder / "trust.json"), hold=1, grace=1)
    where = str(Topic("g", "resource", "v1"))
    assert holds.removed() == {"v1"}
    with pytest.raises(ProtocolError, match="removed"):
        holds._certified(where, packets["v1"])
    assert holds.removed() == {"v1"}
    holds._certified(where, later)
    assert holds.removed() == set()


async def test_a_hub_takes_no_removed_resource_for_its_gateway(folder):
    gateway = load_gateway(folder / "gateway.json")
    remove_resources(folder, ["v1"])

    hub = Hub(load_trust(folder / "trust.json"))
    url = await hub.start()
    packets = tuple(gateway.certificates.values())
    with pytest.raises(Exception, match="removed this resource"):
        await connect(url, credentials=Credentials("resource", gateway.signer, certificates=packets))
    rest = tuple(load_gateway(folder / "gateway.json").certificates.values())
    transport = await connect(url, credentials=Credentials("resource", gateway.signer, certificates=rest))
    await transport.close()
    await hub.stop()


def asked(issuer, member, game):
    blinded = tokens.request(issuer.key(game), game, bytes(32)).blinded
    data = token_request(member, game, blinded)
    return issuer.answer(data[64:], data[:64]).blind_signature


def test_a_member_that_was_removed_gets_no_further_token_without_a_restart(folder, tmp_path):
    issuer = Issuer(tmp_path / "issuer.db", Signer.fresh())
    issuer.follow(folder / "members.txt")
    alice, bob = (Signer(load_secret(folder / f"member-{name}.key")) for name in ("alice", "bob"))
    for member in (alice, bob):
        asked(issuer, member, "g")
    remove_members(folder, ["bob"])
    asked(issuer, alice, "h")
    with pytest.raises(ProtocolError, match="registered"):
        asked(issuer, bob, "h")
    issuer.close()
    # Nor after one, and the other way round: by the public key, and back with a key of its own.
    issuer = Issuer(tmp_path / "issuer.db", Signer.fresh())
    issuer.follow(folder / "members.txt")
    remove_members(folder, [alice.public.hex()])
    add_members(folder, ["carol"])
    for member in (alice, bob):
        with pytest.raises(ProtocolError, match="registered"):
            asked(issuer, member, "i")
    asked(issuer, Signer(load_secret(folder / "member-carol.key")), "i")
    issuer.close()


def test_a_brokers_configuration_is_written_again_with_the_same_passwords(tmp_path):
    first = Mosquitto(gateways={"gateway": ("v1",)}).write(tmp_path)
    second = Mosquitto(gateways={"gateway": ("v1", "v9"), "depot": ("v2",)}).write(tmp_path)
    assert first.items() <= second.items()
    assert second.keys() - first.keys() == {"depot"}
    assert "handover/v9" in (tmp_path / "access").read_text()


@pytest.mark.skipif(MOSQUITTO is None, reason="Mosquitto is not installed (apt-get install mosquitto)")
def test_a_running_broker_takes_a_new_resource_after_a_signal(tmp_path):
    """As docs/live-operate.md says: write its configuration again, and send it SIGHUP."""
    import os
    import signal

    options: dict[str, Any] = {"port": free_port(), "run_as": "root" if os.geteuid() == 0 else ""}
    broker = Broker(Mosquitto(gateways={"gateway": ("v1",)}, **options), tmp_path)
    seen: list[bytes] = []

    async def shown():
        url = f"mqtt://127.0.0.1:{options['port']}"
        device = await connect(url)
        gateway = await connect(url, user="gateway", password=broker.passwords["gateway"])
        await gateway.publish(Topic("g", "resource", "v2"), certified_packet("v2"))
        found = await device.value(Topic("g", "resource", "v2"), 1)
        seen.extend([] if found is None else [found])
        await gateway.close()
        await device.close()

    try:
        asyncio.run(shown())
        assert seen == []
        Mosquitto(gateways={"gateway": ("v1", "v2")}, **options).write(tmp_path)
        broker.process.send_signal(signal.SIGHUP)
        for _ in range(20):
            asyncio.run(shown())
            if seen:
                break
        assert seen
    finally:
        broker.close()


def test_a_trust_file_has_a_version_and_an_end_and_each_change_makes_a_later_one(folder, monkeypatch):
    trust = load_trust(folder / "trust.json")
    known = {"version", "until", "operator", "board", "issuer", "partition", "removed", "former", "address"}
    assert set(msgspec.to_builtins(trust)) == known
    now = time.time()
    assert trust.version == 1
    trust.check_end(now + 365 * 86_400)
    with pytest.raises(Refused, match="has ended, on 2"):
        trust.check_end(now + 367 * 86_400)
    certify(folder, ["v9"], 366 * DAY)
    assert load_trust(folder / "trust.json").version == 1
    remove_resources(folder, ["v9"])
    assert load_trust(folder / "trust.json").version == 2
    # An end that is near is moved with the certificates.
    monkeypatch.setattr(time, "time", lambda: now + 300 * 86_400)
    certify(folder, ["v9"], 500 * DAY)
    last = load_trust(folder / "trust.json")
    assert last.version == 3
    last.check_end(now + 799 * 86_400)
    assert set(last.removals) == {"v9"}
    assert isinstance(trust.partition, m.Partition)


@pytest.mark.parametrize("name", ["v", 60 * "\U0001f697"])
def test_a_gateway_of_thousands_of_resources_fits_into_what_a_board_allows_its_message(folder, name):
    certify(folder, [f"{name}{number:04d}" for number in range(100)], 366 * DAY)
    gateway = load_gateway(folder / "gateway.json")
    packets = tuple(packet for found, packet in gateway.certificates.items() if found.startswith(name))
    said = hello(gateway.signer, bytes(32), "resource", certificates=packets)
    # More than a megabyte for 10,000 of them, which a hub does not allow to all.
    assert 2**20 / 10_000 < len(said) / len(packets) < live_services._CERTIFICATE


def test_a_device_keeps_to_its_operator_and_to_the_newest_trust_file(folder, tmp_path):
    """Whatever it is given later, before it asks for a token or takes part in a game."""
    first = load_trust(folder / "trust.json")
    remove_resources(folder, ["v1"])
    second = load_trust(folder / "trust.json")
    other = replace(second, operator=Signer.fresh().public)
    ended = replace(second, version=3, until=int(time.time() * 1000) - 1)

    async def ask(_, __):
        raise AssertionError("A token was asked for.")

    async def taking_part(trust):
        with Ledger(tmp_path / "ledger", agent="ada", lifetime=units_of(1.0)) as ledger:
            device = Device(trust, tmp_path, ledger, ask)
            transport = MemoryBroker(0).connect()
            with pytest.raises(TransportError):
                # It goes as far as to look for the issuer's key, which there is not.
                await device.identify(transport, "game-1")

    run_virtual(taking_part(first))
    run_virtual(taking_part(second))
    for trust, words in (
        (first, "has version 1, and this device has used version 2"),
        (other, "found another operator than the one that the ledger knows"),
        (ended, "has ended"),
    ):
        with pytest.raises(Refused, match=words):
            run_virtual(taking_part(trust))
    run_virtual(taking_part(second))
