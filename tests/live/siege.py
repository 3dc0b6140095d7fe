"""An honest game of the real commands, while other clients hold connections and do not let go."""

import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from websockets.frames import Frame, Opcode

from live.conftest import free_port
from live.processes import line_of, party
from palmatch.device.messages import VERSION
from palmatch.live.transport.exchange import CBOR, Op, frame
from running import run

# A client asks for the largest retained values that there are, within the rate that is allowed, ASKED times.
ASKED = 2
ASK = Frame(Opcode.BINARY, frame(Op.SUBSCRIBE, f"pm/{VERSION}/+/resources", b"")).serialize(mask=True) * 8
UPGRADE = (
    "GET /bus HTTP/1.1\r\nHost: hub\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    f"Sec-WebSocket-Key: {'A' * 22}==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: {CBOR}\r\n\r\n"
).encode()
SENT = {
    "idle": b"",
    "slow": UPGRADE,
    "half": b"POST /token HTTP/1.1\r\nHost: hub\r\nContent-Length: 2000\r\n\r\nhalf",
}
# So that the list of resources, which every client may ask for, has 66 kB.
RESOURCES = 3000


class Besieger:
    """Clients that connect, send what their kind sends, and read nothing; those that are cut off come again."""

    def __init__(self, port: int, pid: int, counts: dict[str, int]) -> None:
        self.port = port
        self.pid = pid
        # What the board's process has for itself, in MB: before the siege, and most of all within it.
        self.before = self.peak = own_megabytes(pid)
        self.kinds = [kind for kind, count in counts.items() for _ in range(count)]
        self.sockets: list[socket.socket | None] = [None] * len(self.kinds)
        self.asked = [0] * len(self.kinds)
        self.ended = threading.Event()
        # All of them have connected, and have sent what they send.
        self.there = threading.Event()

    def run(self) -> None:
        while not self.ended.is_set():
            self.peak = max(self.peak, own_megabytes(self.pid))
            for place, kind in enumerate(self.kinds):
                if self.ended.is_set():
                    break
                if not self._asks_on(place):
                    self._open(place, SENT[kind])
            if all(asked == ASKED or kind != "slow" for kind, asked in zip(self.kinds, self.asked, strict=True)):
                self.there.set()
            self.ended.wait(0.2)
        for one in self.sockets:
            if one is not None:
                one.close()

    def _asks_on(self, place: int) -> bool:
        """Ask again, as a slow reader; tell whether there is a connection."""
        one = self.sockets[place]
        if one is None:
            return False
        try:
            if self.kinds[place] == "slow":
                if self.asked[place] < ASKED:
                    one.send(ASK)
                    self.asked[place] += 1
                return True
            return one.recv(1) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def _open(self, place: int, data: bytes) -> None:
        if (before := self.sockets[place]) is not None:
            before.close()
            self.sockets[place] = None
        with suppress(OSError):
            one = socket.create_connection(("127.0.0.1", self.port), timeout=2)
            self.sockets[place] = one
            # What the system keeps of what is not read would be the hub's memory elsewhere.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.sendall(data)
            self.asked[place] = 0
            one.setblocking(False)


def own_megabytes(pid: int) -> float:
    """Return the memory that a process has for itself: without the pages of program files, which all programs share.

    How many of those stand in memory is the system's choice: 180 to 210 MB for the same board on two machines.
    """
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon:")).split()[1]) / 1024


@contextmanager
def besieging(port: int, pid: int, counts: dict[str, int]) -> Iterator[Besieger]:
    besieger = Besieger(port, pid, counts)
    thread = threading.Thread(target=besieger.run)
    thread.start()
    try:
        yield besieger
    finally:
        besieger.ended.set()
        thread.join()


def play_besieged(folder: Path, counts: dict[str, int], *, files: int, seconds: int) -> tuple[float, float]:
    """Play a game beside such clients; return the board's own memory after a game without them, and its peak, in MB.

    The first game has the board load what it needs, or compile it, which takes more memory than any siege.
    """
    lines = [f"v{number},{40.75 + 0.00001 * number:.5f},-73.99\n" for number in range(RESOURCES)]
    (folder / "vehicles.csv").write_text("id,lat,lon\n" + "".join(lines))
    made = run("live", "operator", "keys", "--resources", "vehicles.csv", "--member", "alice", folder=folder)
    assert made.returncode == 0, made.stderr
    port = free_port()
    hub = ("--trust", "keys/trust.json", "--hub", f"ws://127.0.0.1:{port}/bus")
    times = ("--every", f"{2 * seconds}s", "--joining", f"{seconds}s", "--slot", "3s", "--interest", "5")

    def take_part(ledger: str) -> None:
        told = run(
            "live", "device", "--at", "40.7501,-73.9901", "--ledger", ledger, "--member",
            "keys/member-alice.key", "--patience", "5m", "--games", 3, *hub, folder=folder,
        )  # fmt: skip
        assert board.poll() is None
        assert told.returncode == 0, told.stdout + told.stderr
        assert "matched to" in told.stdout

    with party("board", "keys", "--resources", "vehicles.csv", *times, "--port", port, folder=folder) as board:
        resource.prlimit(board.pid, resource.RLIMIT_NOFILE, (files, files))
        line_of(board, "The hub is at")
        with party("resource", "keys/gateway.json", *hub, folder=folder) as gateway:
            line_of(gateway, "Serving")
            take_part("first.ledger")
            with besieging(port, board.pid, counts) as besieger:
                assert besieger.there.wait(300)
                take_part("second.ledger")
    return besieger.before, besieger.peak
