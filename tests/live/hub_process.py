"""A hub in a process of its own, so that it can be killed: `python tests/live/hub_process.py PORT TRUST`."""

import asyncio
import sys
from pathlib import Path

import msgspec

from palmatch.live.transport.hub import Hub
from palmatch.live.transport.socket import Limits
from palmatch.live.trust import Trust


async def serve(port: int, trust: Trust) -> None:
    await Hub(trust, limits=Limits(packet=2**23)).start(port=port)
    await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), msgspec.json.decode(Path(sys.argv[2]).read_bytes(), type=Trust)))
