"""Make the pictures of the documentation, from public functions and the default seed.

python -m benchmarks.pictures
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import palmatch as pm
from benchmarks.beliefs import belief_maps
from benchmarks.likelihoods import belief
from palmatch.methods import Settings
from palmatch.report.style import save

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
BUDGETS = "0.1,0.2,0.5,1,2,4,8"
FRONTIER = "limit,once,palma,published,noise,hungarian-once,hungarian-region"
SHOWN = ("map.png", "frontier.png")

# Picked among nine agents and four seeds because the noisy report lands on the map, so that it can be drawn there.
WATCHED, EDGE, SEED = 0, 2000.0, 0
SHOWN_BELIEFS = ("once", "palma")


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        palmatch = Path(sys.executable).with_name("palmatch")
        subprocess.run([palmatch, "demo", "--out", folder], check=True)
        words = ("--epsilon", BUDGETS, "--methods", FRONTIER, "--runs", "100", "--page", folder)
        subprocess.run([palmatch, "compare", *words], check=True)
        for name in SHOWN:
            shutil.copyfile(Path(folder) / name, PICTURES / name)
            print(PICTURES / name)
    print(draw_belief(PICTURES / "belief.png"))


def draw_belief(path: Path) -> Path:
    """Draw what an attacker believes about one agent after watching `once` and after watching `palma`."""
    batch = pm.data.city.batch(19.0)
    problem, settings = pm.mobility.problem(batch.requests, batch.vehicles, edge=EDGE), Settings(epsilon=1.0)
    save(belief_maps(*(belief(problem, name, WATCHED, settings=settings, seed=SEED) for name in SHOWN_BELIEFS)), path)
    return path


if __name__ == "__main__":
    main()
