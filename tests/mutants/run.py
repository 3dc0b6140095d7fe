"""Apply the mutants of `tests/mutants/*.toml` one at a time and expect that the tests named as killers fail.

`python tests/mutants/run.py [--jobs N] [--area AREA] [--only ID,ID]`; the status is 1 if a mutant survives or does not
fit the tree. Each mutant gets a copy of the tree, in front of the installed package by PYTHONPATH.
"""

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("src", "tests", "docs", "examples", "benchmarks")
# pytest's statuses; any other than these two (no such test, an error in collection) means that nothing was tested.
PASSED, FAILED = 0, 1


@dataclass(frozen=True, slots=True)
class Mutant:
    """A defect: the texts to replace, as (file, old, new), and the tests that have to fail."""

    id: str
    area: str
    breaks: str
    killers: tuple[str, ...]
    changes: tuple[tuple[str, str, str], ...]


def load() -> list[Mutant]:
    """Read all mutants, in the order of files and entries."""
    return [
        Mutant(
            entry["id"],
            path.stem,
            entry["breaks"],
            tuple(entry["killer"]),
            tuple((change["file"], change["old"], change["new"]) for change in entry["change"]),
        )
        for path in sorted(Path(__file__).parent.glob("*.toml"))
        for entry in tomllib.loads(path.read_text())["mutant"]
    ]


def misfits(mutants: list[Mutant]) -> list[str]:
    """Say what in the mutants does not fit the tree: their places, their killers, an id used twice."""
    ids = [mutant.id for mutant in mutants]
    found = [f"{name}: the id of {ids.count(name)} mutants" for name in sorted(set(ids)) if ids.count(name) > 1]
    for mutant in mutants:
        for file, old, new in mutant.changes:
            times = (ROOT / file).read_text().count(old) if (ROOT / file).is_file() else 0
            if times != 1 or old == new:
                found.append(f"{mutant.id}: its text occurs {times} times in {file}, or is not changed")
        if not mutant.killers or not mutant.changes:
            found.append(f"{mutant.id}: no killer or no change")
        found += [f"{mutant.id}: no test {killer}" for killer in mutant.killers if not _is_test(killer)]
    return found


def _is_test(killer: str) -> bool:
    """Whether a node id names a test of `make test`; parameters in brackets are not looked at."""
    file, _, name = killer.partition("[")[0].partition("::")
    return name.startswith("test_") and not file.startswith("tests/nightly/") and name in _functions_of(ROOT / file)


@cache
def _functions_of(path: Path) -> frozenset[str]:
    if not path.is_file():
        return frozenset()
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return frozenset(node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds))


def copy_tree(source: Path, target: Path) -> None:
    """Copy what the tests need, with compiled kernels and times of files, so that the kernels are still valid."""
    for folder in COPIED:
        shutil.copytree(source / folder, target / folder)
    for file in source.iterdir():
        if file.is_file():
            shutil.copy2(file, target)


def run_tests(tree: Path, tests: list[str], *options: str) -> tuple[int, str]:
    """Run tests in a copy of the tree."""
    command = [sys.executable, "-m", "pytest", "-q", *options, *tests]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def clear_kernels(tree: Path, changed: set[Path]) -> None:
    """Delete compiled kernels of changed modules and of those that import them, which numba does not notice."""
    kernels: dict[Path, list[Path]] = {}
    for cached in tree.glob("src/**/__pycache__/*.nb[ic]"):
        kernels.setdefault(cached.parents[1] / f"{cached.name.partition('.')[0]}.py", []).append(cached)
    stale = [path for path in changed if path in kernels]
    for path in stale:  # grows
        package, name = path.parent.name, path.stem
        imported = re.compile(rf"\b{package}\.{name}\b|\b{package} import [^\n]*\b{name}\b")
        stale += [module for module in kernels.keys() - set(stale) if imported.search(module.read_text())]
        for cached in kernels[path]:
            cached.unlink()


def try_mutant(clean: Path, mutant: Mutant) -> tuple[int, str]:
    """Run a mutant's killers on a copy of the clean tree that has its changes."""
    with tempfile.TemporaryDirectory(prefix=f"mutant-{mutant.id}-") as folder:
        tree = Path(folder)
        copy_tree(clean, tree)
        for file, old, new in mutant.changes:
            (tree / file).write_text((tree / file).read_text().replace(old, new))
        clear_kernels(tree, {tree / file for file, _, _ in mutant.changes})
        return run_tests(tree, list(mutant.killers), "-x", "-p", "no:cacheprovider")


def main() -> int:
    """Run the chosen mutants."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--area", help="the name of a file without .toml")
    parser.add_argument("--only", type=lambda text: text.split(","), default=(), help="ids, separated by commas")
    chosen = parser.parse_args()
    every = load()
    mutants = [m for m in every if chosen.area in (None, m.area) and (not chosen.only or m.id in chosen.only)]
    wrong = misfits(every) + [f"{name}: no such mutant" for name in set(chosen.only) - {m.id for m in mutants}]
    if wrong or not mutants:
        sys.exit("\n".join(wrong) or "no mutants")
    survivors = []
    with tempfile.TemporaryDirectory(prefix="mutants-clean-") as folder, ThreadPoolExecutor(chosen.jobs) as pool:
        clean = Path(folder)
        copy_tree(ROOT, clean)
        killers = sorted({killer for mutant in mutants for killer in mutant.killers})
        status, output = run_tests(clean, killers, "-n", str(chosen.jobs))
        if status != PASSED:
            sys.exit(f"{output}\nThe killers do not pass on the clean tree.")
        sys.stdout.write(f"{len(killers)} killers pass on the clean tree\n")
        runs = {pool.submit(try_mutant, clean, mutant): mutant for mutant in mutants}
        for number, run in enumerate(as_completed(runs), 1):
            mutant, (status, output) = runs[run], run.result()
            killed = "killed" if status == FAILED else f"SURVIVED with status {status}"
            sys.stdout.write(f"{number}/{len(mutants)} {mutant.id} {killed}: {mutant.breaks}\n")
            sys.stdout.flush()
            if status != FAILED:
                survivors.append(mutant.id)
                sys.stdout.write("" if status == PASSED else output)
    sys.stdout.write(f"{len(mutants)} mutants, {len(survivors)} survive: {', '.join(survivors) or 'none'}\n")
    return int(bool(survivors))


if __name__ == "__main__":
    sys.exit(main())
