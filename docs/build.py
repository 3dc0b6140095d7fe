"""Make the docs' pictures anew: `make docs`. They are those of `palmatch demo` with its default seed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PICTURES = Path(__file__).parent / "pictures"
SHOWN = ("map.png", "loss.png")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        palmatch = Path(sys.executable).with_name("palmatch")
        subprocess.run([palmatch, "demo", "--out", folder], check=True)
        PICTURES.mkdir(exist_ok=True)
        for name in SHOWN:
            shutil.copyfile(Path(folder) / name, PICTURES / name)
            print(PICTURES / name)


if __name__ == "__main__":
    main()
