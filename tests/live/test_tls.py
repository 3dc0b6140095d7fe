import socket
import ssl
from pathlib import Path

import pytest
import trustme

from live.buses import KEYS
from live.examples import MESSAGES, topic
from palmatch.errors import InputError, TransportError
from palmatch.live.mosquitto import Mosquitto
from palmatch.live.session import issuer_at
from palmatch.live.transport import Access, Hub, connect
from palmatch.studies import live_game

OPENED = KEYS["board"].packet(topic("open"), MESSAGES["open"])


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def files(authority, tmp_path):
    issued = authority.issue_cert("127.0.0.1", "localhost")
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    return chain, key


def trusting(authority):
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


async def test_a_hub_over_tls_is_reached_by_those_who_trust_its_authority(authority, files):
    hub = Hub()
    url = await hub.start(certificate=str(files[0]), key=str(files[1]))
    assert url.startswith("wss://")
    await hub.local(Access("board")).publish(topic("open"), OPENED)
    device = await connect(url, tls=trusting(authority))
    assert await device.value(topic("open")) == OPENED
    with pytest.raises(TransportError, match="certificate verify failed"):
        await connect(url)
    await device.close()
    await hub.stop()


async def test_a_broker_over_tls_is_reached_by_those_who_trust_its_authority(authority, files, start_broker):
    broker = start_broker(certificate=files[0], key=files[1])
    url = f"mqtts://127.0.0.1:{broker.configuration.port}"
    board = await connect(url, tls=trusting(authority), user="board", password=broker.passwords["board"])
    await board.publish(topic("open"), OPENED)
    device = await connect(url, tls=trusting(authority))
    assert await device.value(topic("open")) == OPENED
    with pytest.raises(TransportError, match="certificate verify failed"):
        await connect(url)
    await device.close()
    await board.close()


async def test_a_wrong_password_is_refused(start_broker):
    url = f"mqtt://127.0.0.1:{start_broker().configuration.port}"
    with pytest.raises(TransportError, match="refuses the connection"):
        await connect(url, user="board", password="guessed")


def test_mosquitto_takes_the_whole_configuration_without_a_warning(start_broker):
    broker = start_broker(gateways={"depot": ("v 1", "v/2", "ü%u", "a+#")})
    broker.kill()
    lines = Path(broker.log.name).read_text().splitlines()
    assert [line for line in lines if "should not be run as root" not in line] == []


def test_a_token_is_not_asked_for_in_plain_text_on_another_machine():
    for url in ("http://issuer.example/token", "http://192.0.2.1:8766/token", "issuer.example/token"):
        with pytest.raises(InputError, match=r"is not encrypted|expected https"):
            issuer_at(url, KEYS["v1"])
    for url in ("https://issuer.example/token", "http://127.0.0.1:8766/token", "http://[::1]:8766/token"):
        issuer_at(url, KEYS["v1"])
    issuer_at("http://issuer.example/token", KEYS["v1"], allow_plain=True)


def test_passwords_are_kept_from_others(tmp_path):
    passwords = Mosquitto().write(tmp_path)
    assert set(passwords) == {"board", "issuer"}
    for name in ("users", "passwords", "access"):
        assert (tmp_path / name).stat().st_mode & 0o077 == 0
    assert passwords["board"] not in (tmp_path / "users").read_text()
    assert passwords["board"] not in (tmp_path / "mosquitto.conf").read_text()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"host": "0.0.0.0"}, "without TLS"),
        ({"certificate": Path("c.pem")}, "its key"),
        ({"gateways": {"a:b": ("v1",)}}, "access list"),
        ({"gateways": {"a\nuser board": ("v1",)}}, "access list"),
    ],
)
def test_an_unsafe_configuration_is_not_written(tmp_path, options, reason):
    with pytest.raises(InputError, match=reason):
        Mosquitto(**options).write(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_port_of_a_broker_that_is_being_started_goes_to_no_other_program():
    holder, port = live_game._reserved_port()
    with holder, socket.socket() as other, socket.socket() as broker:
        with pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        broker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        broker.bind(("127.0.0.1", port))
        broker.listen()
