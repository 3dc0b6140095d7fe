"""palmatch examples: the files that the guides use, copied out of the package into a folder of the user's.

It copies, and knows nothing of what the files hold.
"""

from __future__ import annotations

from pathlib import Path

import palmatch
from palmatch.atomic import write_atomic
from palmatch.cli import show
from palmatch.errors import InputError


def examples(*, out: Path = Path("examples")) -> None:
    """Write the example files and scripts that the guides use into a new folder.

    Parameters
    ----------
    out:
        The folder, which must not exist yet or be empty.

    Examples
    --------
    Example: palmatch examples --out examples

    README.md in the folder lists the files and commands to try.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} exists already and is not an empty folder; choose another --out.")
    package = Path(palmatch.__file__).parent
    # Inside an installed package, and beside src/ in the sources.
    source = package / "examples" if (package / "examples").is_dir() else package.parents[1] / "examples"
    folder = show.folder_for(out)
    files = sorted(path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    for file in files:
        target = folder / file.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(target, file.read_bytes())
    show.say(f"{len(files)} files are in {out}. Begin with: cd {out}, then")
    show.say("  palmatch match agents.csv vehicles.csv --out pairs.csv")
    show.say(f"{out / 'README.md'} lists what else there is to try.")
