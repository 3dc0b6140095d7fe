"""Without --seed every command draws secretly; with one it says simulation. Synthetic data has a seed of its own."""

import inspect
import json
import stat
from importlib import import_module
from pkgutil import iter_modules

import polars as pl

import palmatch as pm
import palmatch.cli
from palmatch.guarantee import SIMULATION
from palmatch.studies import tasks
from running import run_line as run

# Losses of 4 random matchings of 17 agents agree with a probability far below 1e-6.
PLAYED = ("--methods once,random --runs 4",)
STUDY = ("reproduce mobility --seconds 3 --edges 1000 --processes 1 --runs 1",)


def commands():
    found = []
    for module in iter_modules(palmatch.cli.__path__, "palmatch.cli."):
        for name, function in vars(import_module(module.name)).items():
            if inspect.isfunction(function) and function.__module__.startswith(("palmatch.cli", "palmatch.studies")):
                parameters = inspect.signature(function).parameters
                found += [(f"{module.name}.{name}", parameters["seed"])] if "seed" in parameters else []
    return found


def test_no_command_and_no_study_has_a_seed_of_its_own():
    functions = [*commands(), *((f.__name__, inspect.signature(f).parameters["seed"]) for f in (
        pm.match, pm.compare, pm.audit, type(pm.limit).__call__, pm.papers.problem,
    ))]  # fmt: skip
    assert len(functions) > 15
    assert [name for name, seed in functions if seed.default not in (inspect.Parameter.empty, None)] == []


def test_a_study_differs_each_time_unless_a_seed_is_given_and_then_says_simulation(town):
    words = ("compare agents.csv vehicles.csv", *PLAYED, "--json told.json")
    seen: dict[bool, list[object]] = {True: [], False: []}
    for seed in ((), (), ("--seed 3",), ("--seed 3",)):
        result = run(*words, *seed, folder=town)
        assert (result.returncode, result.stderr) == (0, "")
        told = json.loads((town / "told.json").read_text())
        assert ("A simulation: all draws follow from --seed 3" in result.stdout) is bool(seed)
        assert (told["problem"]["seed"], told["problem"]["simulation"]) == ((3, True) if seed else (None, False))
        seen[bool(seed)].append([row["loss_mean"] for row in told["rows"]])
    assert seen[False][0] != seen[False][1]
    assert seen[True][0] == seen[True][1]


def test_runs_of_a_study_are_called_simulations_since_all_methods_share_their_draws():
    night = pm.data.city.batch(5.0)
    problem = pm.mobility.problem(night.requests, night.vehicles)
    found = pm.compare(problem, ["once", "hungarian-once"], runs=2)
    assert all(SIMULATION in run.matching.guarantee.assumptions for runs in found.runs.values() for run in runs)
    assert SIMULATION not in pm.match(problem).guarantee.assumptions


def test_the_demo_draws_secretly_on_a_city_that_stays_the_same(tmp_path):
    words = ("demo --hour 5 --runs 1",)
    for name, seed in (("fresh", ()), ("seeded", ("--seed 5",)), ("other", ("--data-seed 1",))):
        result = run(*words, *seed, "--out", name, folder=tmp_path)
        assert ("A simulation: all draws follow from --seed 5" in result.stdout) is (name == "seeded")
        page = (tmp_path / name / "report.html").read_text(encoding="utf-8")
        assert ("5 (a simulation)" if name == "seeded" else "none: fresh randomness") in page
        assert ("palmatch demo --seed 5 --data-seed 0" in page) is (name == "seeded")
    cities = [(tmp_path / name / "agents.csv").read_bytes() for name in ("fresh", "seeded", "other")]
    assert cities[0] == cities[1] != cities[2]


def test_a_study_without_a_seed_keeps_it_in_one_private_file_and_tells_it_nowhere(tmp_path):
    for name in ("one", "two"):
        result = run(*STUDY, "--out", name, "--json", f"{name}.json", folder=tmp_path)
        assert (result.returncode, result.stderr) == (0, "")
        secret = tmp_path / name / "cells" / tasks.SECRET_SEED
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
        seed = secret.read_text().strip()
        others = [path for path in tmp_path.rglob("*") if path.is_file() and path != secret]
        assert len(others) > 5
        assert not any(seed.encode() in path.read_bytes() for path in others)
        assert seed not in result.stdout
        assert json.loads((tmp_path / f"{name}.json").read_text())["seed"] is None
    rows = [pl.read_parquet(tmp_path / name / "results.parquet") for name in ("one", "two")]
    assert not rows[0].equals(rows[1])
    refused = run(*STUDY, "--seed 1 --out one", folder=tmp_path)
    assert "seed is drawn secretly there and 1 here" in refused.stderr
