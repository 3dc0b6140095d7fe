"""What a release has to pass: build, metadata, and the wheel alone in an empty environment, without the sources.

    python -m benchmarks.release [--keep FOLDER]

For each Python that is found the wheel is installed with its dependencies, prints its version, plays the demonstration,
writes the files of `palmatch examples` and matches them, and imports the device with the standard library only; then
each extra is installed and used. The sdist is installed with the first of them. With pyenv, name the versions:
PYENV_VERSION=3.11.7:3.12.1:3.13.0 make release-check
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ("python3.11", "python3.12", "python3.13")
SMOKE: tuple[tuple[str, ...], ...] = (
    ("--version",),
    ("demo", "--hour", "5", "--runs", "1", "--out", "demo"),
    ("match", "agents.csv", "vehicles.csv", "--edge", "1000", "--out", "pairs.csv"),
    ("match", "reviewers.csv", "papers.csv", "--domain", "papers", "--out", "reviews.csv"),
)
EXTRAS = {
    # As many devices as for a reader: a board of fewer compiles less before it gives up the rights to store it.
    "live": ("live", "demo"),
    "dask": ("reproduce", "papers", "--areas", "2", "--runs", "1", "--cluster", "local:2", "--out", "papers"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, help="where wheel and sdist go; a temporary folder unless given")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        built = (wanted.keep or Path(folder) / "dist").resolve()
        say(sys.executable, "-m", "build", "--quiet", "--outdir", built, ROOT)
        files = sorted(built.glob("palmatch-*"))
        say(sys.executable, "-m", "twine", "check", "--strict", *files)
        found = [path for name in PYTHONS if (path := shutil.which(name)) and runs(path)] or [sys.executable]
        for number, python in enumerate(found):
            for file in files if number == 0 else [file for file in files if file.suffix == ".whl"]:
                try_alone(python, file, Path(folder))
        print(f"passed: {', '.join(file.name for file in files)} on {', '.join(found)}")


def runs(python: str) -> bool:
    """Tell whether a Python that is on the path starts: the shims of a version manager may not."""
    return subprocess.run([python, "--version"], capture_output=True, check=False).returncode == 0


def try_alone(python: str, file: Path, folder: Path) -> None:
    """Install one file into an empty environment and use it where the sources are out of reach."""
    place = Path(tempfile.mkdtemp(dir=folder))
    say(python, "-m", "venv", place / "venv")
    here = place / "venv" / "bin"
    say(here / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", file)
    say(here / "python", "-S", "-c", _without_site(here), folder=place)
    say(here / "palmatch", "examples", folder=place)
    for words in SMOKE:
        say(here / "palmatch", *words, folder=place / "examples")
    for extra, words in EXTRAS.items() if file.suffix == ".whl" else ():
        say(
            here / "python",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            f"palmatch[{extra}] @ {file.as_uri()}",
        )
        say(here / "palmatch", *words, folder=place / "examples")


def _without_site(here: Path) -> str:
    """Return a program that imports the device where only palmatch and the standard library are to be found."""
    found = subprocess.run(
        [here / "python", "-c", "import palmatch; print(palmatch.__file__)"],
        check=True,
        capture_output=True,
        text=True,
        env=_environment(),
    )
    source = Path(found.stdout.strip()).parent
    return (
        "import importlib.util, sys; "
        f"spec = importlib.util.spec_from_file_location('palmatch', {str(source / '__init__.py')!r}, "
        f"submodule_search_locations=[{str(source)!r}]); "
        "module = importlib.util.module_from_spec(spec); sys.modules['palmatch'] = module; "
        "spec.loader.exec_module(module); "
        "import palmatch.device.state, palmatch.device.rounds, palmatch.device.ledger; "
        "assert 'numpy' not in sys.modules"
    )


def say(*words: object, folder: Path | None = None) -> None:
    """Run a command that has to succeed."""
    print("$", " ".join(map(str, words))[:160], flush=True)
    subprocess.run([str(word) for word in words], check=True, cwd=folder, env=_environment())


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


if __name__ == "__main__":
    main()
