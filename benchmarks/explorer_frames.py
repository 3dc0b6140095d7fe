"""Frames a second of the explorer's map in Chromium: python benchmarks/explorer_frames.py [agents] [method].

Every frame is a round of the game, drawn and painted before the next one is asked for.
"""

from __future__ import annotations

import asyncio
import shutil
import sys

from playwright.async_api import async_playwright

from palmatch.live.transport.hub import Hub
from palmatch.web.scenes import Scenes
from palmatch.web.server import Explorer

_FRAMES = """async (frames) => {
  const scrub = document.getElementById("scrub"), painted = () => new Promise((done) => requestAnimationFrame(done));
  const began = performance.now();
  for (let frame = 0; frame < frames; frame++) {
    scrub.value = 1 + (frame % Number(scrub.max));
    scrub.dispatchEvent(new Event("input"));
    await painted();
  }
  return (1000 * frames) / (performance.now() - began);
}"""


async def measure(agents: int, method: str) -> float:
    """Return the frames a second of a game with so many agents."""
    hub = Hub()
    address = await hub.start(routes=Explorer(Scenes()).routes())
    page_address = address.replace("ws", "http", 1).rsplit("/", 1)[0]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = await browser.new_page(viewport={"width": 1280, "height": 900})
        await page.goto(f"{page_address}/#agents={agents}&method={method}")
        await page.locator("#status", has_text="squares.").wait_for(timeout=300_000)
        found = float(await page.evaluate(_FRAMES, 200))
        await browser.close()
    await hub.stop()
    return found


def main() -> None:
    """Print the figure for 10,000 agents, or as many as are asked for."""
    agents = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    method = sys.argv[2] if len(sys.argv) > 2 else "once"
    print(f"{agents:,} agents, {method}: {asyncio.run(measure(agents, method)):.1f} frames a second")


if __name__ == "__main__":
    main()
