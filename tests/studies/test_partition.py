"""Tiles of a map, matched one by one: like the whole, from reports that are drawn once, whatever happens to workers."""

import os
import shutil
import signal
import sys
from concurrent.futures import Executor, Future
from multiprocessing import active_children
from threading import Thread
from time import sleep
from typing import Any

import numpy as np
import polars as pl
import pytest

import palmatch as pm
from forced import forced_reports
from palmatch.data.city import crowd
from palmatch.domains.mobility import ORIGIN
from palmatch.errors import PalmatchError
from palmatch.studies import partition as tiles
from palmatch.studies.partition import Partition, match_partitioned
from palmatch.studies.tasks import started_processes
from running import run

AGENTS = 4000


class Here(Executor):
    """Makes every call at once, in this process."""

    def submit(self, call, /, *given, **options):
        done: Future[Any] = Future()
        done.set_result(call(*given, **options))
        return done


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    monkeypatch.setattr(tiles, "TILE_AGENTS", 2000)
    monkeypatch.setattr(tiles, "CHUNK_ROWS", 1500)


def rows_of(agents=AGENTS, seed=1, **columns):
    drawn = crowd(agents, seed=seed)
    names = [str(number) for number in range(agents)]
    frames = [pl.DataFrame({"id": names, "lat": at[:, 0], "lon": at[:, 1]}) for at in (drawn.requests, drawn.vehicles)]
    return frames[0].with_columns(**columns), frames[1]


def write(folder, agents, resources):
    """Write agents into a folder of two files, and resources into one file."""
    (folder / "agents").mkdir(parents=True)
    half = len(agents) // 2
    agents[:half].write_parquet(folder / "agents" / "0.parquet")
    agents[half:].write_parquet(folder / "agents" / "1.parquet")
    resources.write_parquet(folder / "vehicles.parquet")
    return folder / "agents", folder / "vehicles.parquet"


def partition(folder, method="once", **more):
    numbers = {"interest": 10, "edge": 500.0, "alpha": 4000.0, "spacing": 100.0, "origin": ORIGIN}
    return Partition(folder=folder, method=method, settings=pm.Settings(), **numbers | more)


def pairs_of(folder):
    return pl.read_parquet(folder / "pairs-*.parquet")


def contents(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*.parquet"))}


# The other methods: tests/nightly/test_partition.py.
@pytest.mark.parametrize("method", ["once"])
def test_tiles_are_matched_as_well_as_the_whole(method, tmp_path):
    agents, vehicles = rows_of()
    found = match_partitioned(
        *write(tmp_path, agents, vehicles), partition(tmp_path / "out", method), Here(), seed=3, score=True
    )
    assert found.tiles > 3
    problem = pm.mobility.problem(agents, vehicles, edge=500, interest=10)
    whole = pm.match(problem, method, seed=3)
    pairs = pairs_of(tmp_path / "out")
    assert pairs["agent"].to_list() == list(problem.agent_ids)
    assert pairs["resource"].drop_nulls().is_unique().all()
    number = {name: row for row, name in enumerate(problem.resource_ids)}
    resource_of = np.array([-1 if name is None else number[name] for name in pairs["resource"]])
    assert found.welfare == pytest.approx(problem.true_utility_of(resource_of).sum())
    assert found.matched == found.filled == (resource_of >= 0).sum()
    # Tiles of a thousand agents have far more border than those of a hundred thousand.
    assert found.welfare > 0.99 * whole.welfare
    assert (found.guarantee.epsilon, found.guarantee.delta) == (whole.guarantee.epsilon, 0.0)
    # The private part of the folder is gone.
    assert not (tmp_path / "out" / "do-not-publish").exists()


def test_the_reports_of_a_seed_are_those_of_the_whole_where_channels_are(tmp_path):
    agents, vehicles = rows_of()
    match_partitioned(*write(tmp_path, agents, vehicles), partition(tmp_path / "out"), Here(), seed=3)
    reports = pl.read_parquet(tmp_path / "out" / "reports" / "*.parquet")
    assert sorted(reports["id"].to_list()) == sorted(agents["id"].to_list())
    # Randomised response at ε = 1 over 4 clusters: one's own with a chance of e / (e + 3).
    chances = pl.read_parquet(tmp_path / "out" / "channels" / "*.parquet")["chances"].to_list()
    worst = max(max(row[report::4]) / min(row[report::4]) for row in chances for report in range(4) if len(row) == 16)
    assert worst == pytest.approx(np.e, rel=1e-9)
    assert worst <= np.e


def test_capacities_and_demands_hold_over_all_tiles(tmp_path):
    rng = np.random.default_rng(2)
    agents, vehicles = rows_of(demand=rng.integers(0, 4, AGENTS))
    vehicles = vehicles.with_columns(capacity=pl.Series(rng.integers(0, 5, AGENTS)))
    found = match_partitioned(*write(tmp_path, agents, vehicles), partition(tmp_path / "out"), Here(), seed=3)
    pairs = pairs_of(tmp_path / "out").drop_nulls()
    assert pairs.is_unique().all()
    assert found.filled == len(pairs) > 0.9 * min(agents["demand"].sum(), vehicles["capacity"].sum())
    for name, rows, limit in (("agent", agents, "demand"), ("resource", vehicles, "capacity")):
        used = pairs.group_by(name).len().join(rows, left_on=name, right_on="id")
        assert (used["len"] <= used[limit]).all()
    assert found.matched == pairs["agent"].n_unique()


def test_with_the_same_reports_everything_that_is_written_is_the_same_wherever_agents_are(tmp_path):
    agents, vehicles = rows_of()
    squares = tiles.squares_of(agents["lat"].to_numpy(), agents["lon"].to_numpy(), 500.0)
    rng, other = np.random.default_rng(5), agents["lat", "lon"].to_numpy().copy()
    for _ in range(20):
        moved = other + rng.normal(0.0, 1e-3, other.shape)
        stays = (tiles.squares_of(*moved.T, 500.0) == squares).all(axis=1)
        other[stays] = moved[stays]
    assert (np.abs(other - agents["lat", "lon"].to_numpy()).max(axis=1) > 0).mean() > 0.99
    elsewhere = agents.with_columns(lat=other[:, 0], lon=other[:, 1])
    written = []
    for name, rows in (("here", agents), ("there", elsewhere)):
        folder = tmp_path / name / "out"
        folder.mkdir(parents=True)
        (folder / "public-draws").write_text("17")
        with forced_reports(4):
            match_partitioned(*write(tmp_path / name, rows, vehicles), partition(folder), Here())
        written.append(contents(folder))
    assert written[0].keys() == written[1].keys()
    assert [name for name, content in written[0].items() if content != written[1][name]] == []


def test_nothing_is_matched_with_positions_or_private_streams(tmp_path, monkeypatch):
    seen, honest, all_tiles = [], tiles.MATCHERS["once"], tiles._match_all

    def watched(workspace, plan, reported, chance, trace):
        seen.append((workspace.problem, chance, plan))
        return honest(workspace, plan, reported, chance, trace)

    def without_positions(*given):
        shutil.rmtree(tmp_path / "out" / "do-not-publish", ignore_errors=True)
        return all_tiles(*given)

    monkeypatch.setitem(tiles.MATCHERS, "once", watched)
    monkeypatch.setattr(tiles, "_match_all", without_positions)
    match_partitioned(*write(tmp_path, *rows_of()), partition(tmp_path / "out"), Here())
    published = int((tmp_path / "out" / "public-draws").read_text())
    assert len(seen) > 4
    for problem, chance, plan in seen:
        public = tiles.streams(published, tiles.keys_of(problem.agent_ids))
        for stream in (chance.private, chance.second, chance.public):
            assert np.array_equal(stream, public)
        assert not problem.types[:, (0, 1, 5)].any()
        assert not plan.cell.any()


def test_reports_do_not_follow_from_what_is_published(tmp_path):
    found = []
    for name in ("one", "two"):
        (tmp_path / name / "out").mkdir(parents=True)
        (tmp_path / name / "out" / "public-draws").write_text("17")
        match_partitioned(*write(tmp_path / name, *rows_of()), partition(tmp_path / name / "out"), Here())
        found.append(pl.read_parquet(tmp_path / name / "out" / "reports" / "*.parquet").sort("id"))
    assert found[0]["channel"].equals(found[1]["channel"])
    # Two draws from one channel at ε = 1 differ in about two of three agents.
    assert (found[0]["report"] != found[1]["report"]).mean() > 0.5


def test_who_comes_second_draws_nothing_that_is_used(tmp_path, monkeypatch):
    drawn, first = tiles.draw_reports, []

    def overtaken(plan, chance):
        # Another worker was given the same tile, since this one was thought lost, and is done before it.
        if not first:
            first.append({})
            tiles.draw_tile(*calls[-1])
            first[0] = contents(tmp_path / "out" / "reports")
        return drawn(plan, chance)

    calls: list[Any] = []
    honest = tiles.draw_tile

    def noted(*given):
        calls.append(given)
        return honest(*given)

    noted.__name__ = "draw_tile"
    monkeypatch.setattr(tiles, "draw_reports", overtaken)

    class Noting(Here):
        def submit(self, call, /, *given, **options):
            return super().submit(noted if call is honest else call, *given, **options)

    match_partitioned(*write(tmp_path, *rows_of()), partition(tmp_path / "out"), Noting())
    after = contents(tmp_path / "out" / "reports")
    assert len(first[0]) == 1
    assert {name: after[name] for name in first[0]} == first[0]


def kill_at_first_report(folder, processes, seen):
    """Kill a process as soon as the reports of a tile are there; `seen` gets what was there then."""

    def watch():
        while not (found := contents(folder / "reports") if (folder / "reports").exists() else {}):
            sleep(0.002)
        seen.update(found)
        os.kill(processes()[0], signal.SIGKILL)

    thread = Thread(target=watch, daemon=True)
    thread.start()
    return thread


@pytest.mark.skipif(sys.platform == "win32", reason="there are no signals that kill")
def test_after_a_kill_the_same_call_goes_on_with_the_same_reports(tmp_path):
    files, out, seen = write(tmp_path, *rows_of()), tmp_path / "out", {}
    others = set(active_children())
    kill = kill_at_first_report(out, lambda: [one.pid for one in set(active_children()) - others], seen)
    with pytest.raises(PalmatchError, match="reports that were drawn are kept"), started_processes(2) as pool:
        match_partitioned(*files, partition(out), pool)
    kill.join()
    match_partitioned(*files, partition(out), Here())
    after = contents(out / "reports")
    assert seen
    assert {name: after[name] for name in seen} == seen
    assert len(pairs_of(out)) == AGENTS


def test_output_is_in_the_order_of_ids_in_several_files(tmp_path, monkeypatch):
    monkeypatch.setattr(tiles, "_PART_ROWS", 900)
    agents, vehicles = rows_of()
    words = agents.with_columns(id=pl.concat_str(pl.lit("n"), pl.col("id")))
    for name, rows in (("numbers", agents), ("words", words)):
        found = match_partitioned(
            *write(tmp_path / name, rows.sample(fraction=1.0, shuffle=True, seed=1), vehicles),
            partition(tmp_path / name / "out"),
            Here(),
        )
        assert len(found.files) == 4
        ids = pl.concat([pl.read_parquet(file) for file in found.files])["agent"].to_list()
        assert ids == sorted(rows["id"].to_list(), key=int if name == "numbers" else str)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"id": pl.lit("7")}, "occurs twice|again after"),
        ({"id": pl.when(pl.int_range(AGENTS) == AGENTS - 1).then(pl.lit("7")).otherwise("id")}, "'7' occurs twice"),
        ({"edge": pl.lit(300.0)}, "squares of their own"),
        ({"lat": pl.lit(95.0)}, "latitude"),
    ],
)
def test_what_cannot_be_matched_is_refused_with_a_sentence(columns, words, tmp_path):
    agents, vehicles = rows_of(**columns)
    with pytest.raises(pm.InputError, match=words):
        match_partitioned(*write(tmp_path, agents, vehicles), partition(tmp_path / "out"), Here())
    assert not (tmp_path / "out" / "reports").exists()


def test_a_tile_that_does_not_fit_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(tiles, "TILE_AGENTS", 50)
    with pytest.raises(pm.InputError, match="more than the 50 that one process matches: choose a smaller --edge"):
        match_partitioned(*write(tmp_path, *rows_of()), partition(tmp_path / "out"), Here())


def test_a_folder_of_other_files_is_refused(tmp_path):
    files = write(tmp_path, *rows_of())
    match_partitioned(*files, partition(tmp_path / "out"), Here())
    with pytest.raises(pm.InputError, match="results of other settings"):
        match_partitioned(*files, partition(tmp_path / "out", edge=1000.0), Here())
    # Tiles would lie elsewhere, and the agents in them report once more.
    shutil.copy(tmp_path / "agents" / "1.parquet", tmp_path / "agents" / "2.parquet")
    with pytest.raises(pm.InputError, match="number of files is 3 there and 4 here"):
        match_partitioned(*files, partition(tmp_path / "out"), Here())
    for name in ("1", "2"):
        (tmp_path / "agents" / f"{name}.parquet").unlink()
    with pytest.raises(pm.InputError, match="number of files is 3 there and 2 here"):
        match_partitioned(*files, partition(tmp_path / "out"), Here())


def test_copied_positions_are_for_this_user_alone_and_gone_after_a_mistake(tmp_path):
    agents, vehicles = rows_of(50)
    agents.with_columns(lat=pl.lit(95.0)).write_csv(tmp_path / "agents.csv")
    vehicles.write_parquet(tmp_path / "vehicles.parquet")
    private, modes = tmp_path / "out" / "do-not-publish", set()

    def look(*_):
        if private.exists():
            modes.add(private.stat().st_mode & 0o777)

    files = tmp_path / "agents.csv", tmp_path / "vehicles.parquet"
    with pytest.raises(pm.InputError, match="latitude"):
        match_partitioned(*files, partition(tmp_path / "out"), Here(), progress=look)
    assert modes == {0o700}
    assert not private.exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--memory", "4GB"), "need --interest"),
        (("--memory", "1GB", "--interest", 5), "at least 2GB"),
        (("--memory", "much", "--interest", 5), "a size such as 4GB"),
        (("--memory", "4GB", "--cluster", "local:2", "--interest", 5), "leave it out with --cluster"),
        (("--memory", "4GB", "--interest", 5, "--conflicts", "agents.csv"), "without --pairs, --conflicts"),
        (("--memory", "4GB", "--interest", 5, "--method", "palma"), "go with once, hungarian-once, hungarian-region"),
    ],
)
def test_a_mistake_at_the_command_is_one_sentence(words, sentence, tmp_path):
    agents, vehicles = rows_of(50)
    agents.write_csv(tmp_path / "agents.csv")
    vehicles.write_csv(tmp_path / "vehicles.csv")
    result = run("match", "agents.csv", "vehicles.csv", "--out", "pairs", *words, folder=tmp_path)
    assert result.returncode == 2
    assert sentence in result.stderr


def test_the_command_matches_csv_files_in_processes(tmp_path):
    agents, vehicles = rows_of(300)
    agents.write_csv(tmp_path / "agents.csv")
    vehicles.write_csv(tmp_path / "vehicles.csv")
    words = ("match", "agents.csv", "vehicles.csv", "--interest", 5, "--memory", "2GB", "--out", "pairs", "--seed", 1)
    result = run(*words, folder=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert "Pairs are in pairs" in result.stdout
    assert pairs_of(tmp_path / "pairs")["agent"].to_list() == agents["id"].to_list()
