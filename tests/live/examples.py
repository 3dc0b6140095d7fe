"""One valid message of each kind, with every optional field filled, and the topic that it belongs to."""

from palmatch.device import messages as m
from palmatch.device.messages import pack
from palmatch.live.listing import ListTree
from palmatch.live.topics import KINDS, Topic

HASH, TAG, KEY = bytes(range(32)), b"abcdefgh", bytes(range(32, 64))
PARTITION = m.Partition(edge=1000.0, origin=(40.7, -74.0), spacing=100.0)
GRID = PARTITION
PLACES = [(40.7012, -73.9991), (40.7031, -73.9975), (40.7055, -73.9962)]
TOKEN = bytes(354)
ROUNDS = m.RoundsTable(
    utilities=pack("d", [0.5, 0.25]),
    offsets=pack("I", [0, 1, 2]),
    entries=pack("I", [0, 1]),
    selection=pack("Q", [2**53, 5]),
    backoff=pack("Q", [1, 2]),
    truth_selection=8,
    truth_backoff=9,
    gamma=0.5,
    spent_backoff=0,
    selection_units=pack("Q", [4, 5]),
    backoff_units=pack("Q", [6, 7]),
)
CHANNEL = m.Channel(
    cell_of=pack("I", [0, 1, 1]),
    chances=pack("Q", [2**52, 2**52, 2**52, 2**52]),
    values=pack("d", [0.25, 0.5, 0.75, 1.0]),
    opening=pack("d", [0.0, 0.1]),
    earlier=(m.Earlier(channel=HASH, values=pack("d", [0.25, 0.5])),),
)
LIST = m.ResourceList(names=("v1", "v 2/ü", "v2"), at=pack("d", [1, 2, 3, 4, 5, 6]))

MESSAGES: dict[str, m.Message] = {
    "open": m.Open(
        protocol="report",
        method="once",
        classes=(0.5, 1.0),
        partition=PARTITION,
        joins_close=1_700_000_000_000,
        start=1_700_000_001_000,
        slot=0.5,
        slots=100,
        issuer=b"key",
        resources=ListTree(LIST).root,
        commitment=HASH,
    ),
    "resources": LIST,
    "resource": m.Certificate(name="v1", signing=KEY, sealing=KEY, until=1_800_000_000_000),
    "planned": m.Planned(number=3),
    "issuer": m.IssuerKey(key=b"key"),
    "join": m.Join(token=TOKEN, key=KEY, region="1000 m (3, 5)", epsilon_class=1),
    "heard": m.Heard(region="a", sequence=1, tags=TAG),
    "roster": m.Roster(opened=HASH, randomness=HASH, regions=(m.RegionCount(region="a", counts=(1, 2), members=HASH),)),
    "members": m.Members(region="a", tags=TAG, classes=b"\0"),
    "tables": m.Tables(roster=HASH, tables=(m.TableHash(region="a", epsilon_class=0, table=HASH),)),
    "table": m.Table(
        region="a",
        epsilon_class=0,
        epsilon=1.0,
        roster=HASH,
        resources=("v1", "v2"),
        listed=ListTree(LIST).proof(("v1", "v2")),
        channel=CHANNEL,
        rounds=ROUNDS,
    ),
    "report": m.Report(sequence=1, tag=TAG, channel=HASH, report=7),
    "bid": m.Bid(sequence=1, tag=TAG, offer=0.7),
    "claim": m.Claim(sequence=1, tag=TAG),
    "cancel": m.Cancel(sequence=1, tag=TAG),
    "bulletin": m.Bulletin(
        region="a",
        sequence=2,
        previous=HASH,
        holders=TAG + bytes(8),
        prices=pack("d", [0.5, 0.25]),
        attempted=b"\1\0",
        call=1,
        over=True,
    ),
    "result": m.Result(
        roster=HASH,
        matched=1,
        transcripts=(m.RegionTranscript(region="a", transcript=HASH),),
        bulletins=(m.RegionHead(region="a", sequence=2, bulletin=HASH),),
    ),
    "transcript": m.Transcript(
        method="hungarian-once",
        resources=("v1", "v2"),
        tags=TAG,
        region=pack("I", [0]),
        epsilon_class=b"\1",
        channels=(HASH,),
        channel=pack("i", [0]),
        reports=pack("i", [1]),
        assigned=pack("i", [-1]),
        prices=pack("d", [0.5, 0.25]),
    ),
    "handover": m.Handover(key=KEY, sealed=bytes(144)),
    "answer": m.Answer(tag=TAG, status="Accepted"),
    "fence": m.Fence(nonce=bytes(16)),
}

assert set(MESSAGES) == set(KINDS)


def topic(kind: str) -> Topic:
    names = {"region": "a", "table": "a~0", "resource": "v1", "nonce": "n"}
    return Topic("morning", kind, names.get(KINDS[kind].parameter or ""))
