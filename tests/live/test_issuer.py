import asyncio
from dataclasses import replace
from hashlib import sha256

import httpx
import pytest
from starlette.applications import Starlette

from live.buses import KEYS, TRUST
from live.examples import MESSAGES, topic
from palmatch.device import messages as m
from palmatch.errors import InputError, ProtocolError
from palmatch.live import tokens
from palmatch.live.codec import decode
from palmatch.live.issuer import Announcer, Issuer, read_reply, token_request
from palmatch.live.keys import Signer, load_secret
from palmatch.live.records import is_member, result_record, roster_record
from palmatch.live.topics import Topic
from palmatch.live.trust import add_members, certificate, write_keys

MEMBER = Signer.fresh()


@pytest.fixture
def issuer(tmp_path):
    issuer = Issuer(tmp_path / "issuer.db", KEYS["issuer"])
    issuer.register([MEMBER.public])
    issuer.key("g")
    return issuer


def ask(issuer, member, blinded, game="g"):
    data = token_request(member, game, blinded)
    return issuer.answer(data[64:], data[:64]).blind_signature


def test_a_member_gets_one_token_a_game_and_the_same_answer_again(issuer, tmp_path):
    key, one_time = issuer.key("g"), Signer.fresh().public
    kept = tokens.request(key, "g", one_time)
    first = ask(issuer, MEMBER, kept.blinded)
    assert tokens.is_valid(key, "g", one_time, tokens.token_of(key, "g", one_time, kept, first))
    issuer.close()
    again = Issuer(tmp_path / "issuer.db", KEYS["issuer"])
    assert again.key("g") == key
    assert ask(again, MEMBER, kept.blinded) == first
    with pytest.raises(ProtocolError, match="has had its token"):
        ask(again, MEMBER, tokens.request(key, "g", one_time).blinded)
    other = tokens.request(again.key("h"), "h", one_time)
    assert again.key("h") != key
    ask(again, MEMBER, other.blinded, "h")


def test_unregistered_keys_and_forged_requests_get_no_token(issuer):
    blinded = tokens.request(issuer.key("g"), "g", bytes(32)).blinded
    with pytest.raises(ProtocolError, match="registered"):
        ask(issuer, Signer.fresh(), blinded)
    with pytest.raises(ProtocolError, match="no such game"):
        ask(issuer, MEMBER, blinded, "unknown")
    data = token_request(MEMBER, "g", blinded)
    with pytest.raises(ProtocolError, match="not signed"):
        issuer.answer(data[64:], bytes(64))
    with pytest.raises(ProtocolError):
        issuer.answer(b"nonsense", data[:64])
    with pytest.raises(ProtocolError, match="modulus"):
        ask(issuer, MEMBER, b"\xff" * 256)


def test_a_member_that_is_added_to_the_list_gets_a_token_without_a_restart(issuer, tmp_path, caplog):
    partition = m.Partition(edge=1000.0, origin=(41.0, -74.0), spacing=100.0)
    write_keys(tmp_path / "keys", partition, ("v1",), members=("alice",))
    blinded, listed = tokens.request(issuer.key("g"), "g", bytes(32)).blinded, tmp_path / "keys" / "members.txt"
    before = {path.name: path.read_bytes() for path in (tmp_path / "keys").iterdir()}
    issuer.follow(listed)
    add_members(tmp_path / "keys", ["bob", "carol"])
    for name in ("alice", "bob", "carol"):
        ask(issuer, Signer(load_secret(tmp_path / "keys" / f"member-{name}.key")), blinded)
    # Nothing that was there is another one now, and what is there is never replaced.
    after = {path.name: path.read_bytes() for path in (tmp_path / "keys").iterdir()}
    assert after.keys() - before.keys() == {"member-bob.key", "member-carol.key"}
    assert after.pop("members.txt").startswith(before.pop("members.txt"))
    assert before.items() <= after.items()
    with pytest.raises(InputError, match="never overwritten"):
        add_members(tmp_path / "keys", ["dave", "bob"])
    assert not (tmp_path / "keys" / "member-dave.key").exists()
    assert after.items() <= {path.name: path.read_bytes() for path in (tmp_path / "keys").iterdir()}.items()
    # A list that is broken keeps no member out that was registered, and lets no other in.
    listed.write_text("nonsense")
    ask(issuer, Signer(load_secret(tmp_path / "keys" / "member-bob.key")), blinded)
    with pytest.raises(ProtocolError, match="registered"):
        ask(issuer, Signer.fresh(), blinded)
    assert "members" in caplog.messages
    with pytest.raises(InputError, match="members"):
        issuer.follow(tmp_path / "nowhere" / "members.txt")


def test_the_journal_never_holds_what_a_token_covers(issuer, tmp_path):
    key, one_time = issuer.key("g"), Signer.fresh().public
    kept = tokens.request(key, "g", one_time)
    token = tokens.token_of(key, "g", one_time, kept, ask(issuer, MEMBER, kept.blinded))
    issuer.close()
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("issuer.db*"))
    assert kept.blinded in stored
    for secret in (one_time, sha256(one_time).digest(), token[-256:]):
        assert secret not in stored


def test_tokens_are_given_out_over_http(issuer):
    async def main():
        app = Starlette(routes=[issuer.route()])
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://issuer") as client:
            kept = tokens.request(issuer.key("g"), "g", bytes(32))
            answer = await client.post("/token", content=token_request(MEMBER, "g", kept.blinded))
            tokens.token_of(issuer.key("g"), "g", bytes(32), kept, read_reply(answer.content).blind_signature)
            assert (await client.post("/token", content=b"x" * 100)).status_code == 403
            assert (await client.post("/token", content=b"x" * 100_000)).status_code == 413

    asyncio.run(main())


def test_the_games_key_is_published_under_the_issuers_lasting_key(issuer):
    where, packet = issuer.announcement("g")
    assert TRUST.issuer_says(decode(where, packet)).key == issuer.key("g")
    issuer.forget("g")
    assert issuer.key("g") != TRUST.issuer_says(decode(where, packet)).key


def test_a_file_that_is_no_journal_is_refused(tmp_path):
    (tmp_path / "issuer.db").write_text("not a database, but long enough to look like something else" * 20)
    with pytest.raises(InputError, match="journal"):
        Issuer(tmp_path / "issuer.db", KEYS["issuer"])
    with pytest.raises(InputError, match="32 bytes"):
        Issuer(tmp_path / "other.db", KEYS["issuer"]).register([b"short"])


def said(kind, message=None, signer=KEYS["board"]):
    return decode(topic(kind), signer.packet(topic(kind), message or MESSAGES[kind]))


def test_a_certificate_is_good_for_its_own_resource_and_until_its_end():
    content = m.Certificate(name="v1", signing=KEYS["v1"].public, sealing=bytes(m.KEY), until=1000)
    packet = certificate(KEYS["operator"], "any", content)
    assert TRUST.certified(decode(Topic("g", "resource", "v1"), packet), 1000) == content
    with pytest.raises(ProtocolError, match="another resource's"):
        TRUST.certified(decode(Topic("g", "resource", "v2"), packet), 1000)
    with pytest.raises(ProtocolError, match="expired"):
        TRUST.certified(decode(Topic("g", "resource", "v1"), packet), 1001)


def test_a_roster_of_another_opening_and_tables_of_another_roster_are_refused():
    def naming(kind, **named):
        return said(kind, replace(MESSAGES[kind], **named))

    opened = said("open")
    roster = naming("roster", opened=opened.hash)
    record, _ = roster_record(opened, roster, naming("tables", roster=roster.hash))
    assert [count.region for count in record.counts] == ["a"]
    stray = naming("roster", opened=bytes(m.HASH))
    for others in ((roster, naming("tables", roster=bytes(m.HASH))), (stray, naming("tables", roster=stray.hash))):
        with pytest.raises(ProtocolError, match="roster is not that of this opening"):
            roster_record(opened, *others)


def test_a_transcript_that_the_result_does_not_name_is_refused():
    opened = said("open")
    roster = said("roster", replace(MESSAGES["roster"], opened=opened.hash))
    transcript = said("transcript")
    named = m.RegionTranscript(region=transcript.topic.name or "", transcript=transcript.hash)
    result = said("result", replace(MESSAGES["result"], roster=roster.hash, transcripts=(named,)))
    result_record(opened, roster, result, transcript)
    other = said("transcript", replace(MESSAGES["transcript"], method="once"))
    with pytest.raises(ProtocolError, match="not the one that the result names"):
        result_record(opened, roster, result, other)


def test_a_list_of_members_that_the_roster_does_not_name_is_refused():
    members, listed = said("members"), MESSAGES["members"]
    assert isinstance(listed, m.Members)
    counts = tuple(listed.classes.count(number) for number in range(max(listed.classes) + 1))
    for named in (members.hash, bytes(m.HASH)):
        count = m.RegionCount(region=listed.region, counts=counts, members=named)
        roster = said("roster", replace(MESSAGES["roster"], regions=(count,)))
        if named == members.hash:
            assert is_member(members, roster, listed.tags[: m.TAG], listed.classes[0])
        else:
            with pytest.raises(ProtocolError, match="not the one that the roster names"):
                is_member(members, roster, listed.tags[: m.TAG], listed.classes[0])


async def test_an_issuer_signs_for_games_that_the_board_plans_and_for_no_name_twice(join, tmp_path):
    opening = replace(MESSAGES["open"], partition=TRUST.partition)
    blinded = tokens.request(tokens.public_der(tokens.new_key()), "g", bytes(32)).blinded

    issuer = Issuer(tmp_path / "issuer.db", KEYS["issuer"])
    issuer.register([MEMBER.public])
    await Announcer(await join("issuer"), issuer, TRUST).start()
    board, device = await join("board"), await join()

    async def say(kind, game, content, signer=KEYS["board"]):
        topic = Topic(game, kind)
        await board.publish(topic, signer.packet(topic, content))
        await asyncio.sleep(0.5)

    async def is_announced(game):
        return await device.value(Topic(game, "issuer"), 0.5) is not None

    await say("planned", "a-1-3", m.Planned(number=3))
    assert await is_announced("a-1-3")
    ask(issuer, MEMBER, blinded, "a-1-3")
    await say("planned", "a-1-5", m.Planned(number=4))
    await say("planned", "a-1-6", m.Planned(number=6), Signer.fresh())
    assert not await is_announced("a-1-5")
    assert not await is_announced("a-1-6")
    await say("open", "a-1-3", opening)
    assert issuer.last_opened("a-1") == 3
    # A board with an older journal plans what was opened already; another series has numbers of its own.
    for game, number in (("a-1-2", 2), ("b-1-2", 2)):
        await say("planned", game, m.Planned(number=number))
    assert not await is_announced("a-1-2")
    assert await is_announced("b-1-2")
    await say("open", "a-1-3", replace(opening, slots=99))
    with pytest.raises(ProtocolError, match="opened twice"):
        ask(issuer, MEMBER, blinded, "a-1-3")
    issuer.close()
