"""On a cluster everything comes out as on one machine, also when workers die; when it goes away, a sentence says so."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from palmatch.cluster import connection
from palmatch.cluster.connection import Cluster, ClusterGone, connected
from palmatch.cluster.game import OnCluster, simulate_on_tiles
from palmatch.cluster.match import match_on_tiles
from palmatch.cluster.tiles import tiles_of
from palmatch.errors import InputError
from palmatch.methods import Settings, Workspace, prepare
from palmatch.rounds.draws import streams
from palmatch.rounds.game import simulate
from palmatch.studies import reproduce_mobility
from palmatch.studies.cells import Cell, run_cells
from tiled_games import city, game_of, same
from worker_calls import broken, mistaken, slow, square

distributed = pytest.importorskip("distributed", reason="distributed is not installed: pip install 'palmatch[dask]'")


def squares(count: int) -> list[Cell]:
    return [Cell(f"the square of {number}", square, (number,), weight=number) for number in range(count)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with connected("local:2") as here:
        yield here


def test_cells_on_a_cluster_are_the_files_of_one_machine(cluster: Cluster, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    there = run_cells(
        tmp_path / "there", squares(5), {"seed": 1}, cluster=cluster, progress=lambda *done: seen.append(done)
    )
    assert there["square"].to_list() == [0, 1, 4, 9, 16]
    assert there["process"].all()
    assert seen == [(done, 5) for done in range(6)]
    again = run_cells(
        tmp_path / "there", squares(5), {"seed": 1}, cluster=cluster, progress=lambda *done: seen.append(done)
    )
    assert (again.equals(there), seen[6:]) == (True, [(5, 5)])


def test_a_study_has_the_same_numbers_on_a_cluster(cluster: Cluster, tmp_path: Path) -> None:
    records = reproduce_mobility.from_city(seed=3, seconds=2.0)
    cells = reproduce_mobility.cells(records, edges=[1000.0], runs=2, seed=3)[:2]
    there = run_cells(tmp_path / "there", cells, {"seed": 3}, cluster=cluster)
    assert there.equals(run_cells(tmp_path / "here", cells, {"seed": 3}, processes=1))


def test_a_mistake_on_a_worker_is_the_same_sentence_and_what_is_done_is_kept(cluster: Cluster, tmp_path: Path) -> None:
    for work, error, words in ((mistaken, InputError, "number 13 cannot"), (broken, RuntimeError, "“bad” failed")):
        cells = [*squares(3), Cell("bad", work, (13,), weight=-1.0)]
        with pytest.raises(error, match=words):
            run_cells(tmp_path, cells, {}, cluster=cluster)
        assert len(list(tmp_path.glob("*.parquet"))) == 3


def test_a_matching_on_a_cluster_is_the_matching(cluster: Cluster) -> None:
    problem, numbers, told = city(8), Settings(epsilon=2.0), []
    workspace = Workspace(problem, lambda what, done, total: told.append((what, done, total)))
    there = match_on_tiles(workspace, "palma", settings=numbers, seed=3, tiles=3, cluster=cluster, few=0)
    alone = prepare(Workspace(problem), "palma", settings=numbers).play(3)
    for part in fields(alone):
        np.testing.assert_equal(getattr(there, part.name), getattr(alone, part.name))
    assert ("costs", len(problem.regions), len(problem.regions)) in told
    assert told[-1] == ("rounds", problem.agents, problem.agents)


def test_a_worker_that_is_killed_in_the_middle_of_a_game_changes_nothing(cluster: Cluster) -> None:
    game = game_of("palma")
    tiles = tiles_of(None, np.bincount(game.public.region_of_agent), 3)
    before = set(cluster.client.run(os.getpid).values())
    told, killed = list[int](), list[int]()

    class Killing(Cluster):
        """Kills a worker while the second block is under way: its tables and states are lost with it."""

        def finished(self, futures: Sequence[Any], *, seconds: float) -> list[Any]:
            if told and not killed:
                killed.append(min(before))
                os.kill(killed[0], signal.SIGKILL)
            return super().finished(futures, seconds=seconds)

    player = OnCluster(Killing(cluster.client, cluster.name))
    there = simulate_on_tiles(
        *game.everything(), names=streams(2, game.keys), tile_of_region=tiles, player=player, block=12, few=0,
        progress=lambda done, _total: told.append(done),
    )  # fmt: skip
    same(there, simulate(*game.everything(), names=streams(2, game.keys)))
    assert len(told) > 1
    assert killed[0] not in set(cluster.client.run(os.getpid).values())


def test_a_cluster_that_goes_away_ends_in_a_sentence_and_what_is_done_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PATIENCE", 1.0)
    cells = [*squares(2), Cell("a long one", slow, (7,), weight=-1.0)]
    with connected("local:1") as short:

        def end_it(done: int, _: int) -> None:
            if done == 2:
                short.client.cluster.close()

        with pytest.raises(ClusterGone, match=r"local:1 went away; what was finished is kept, and the same command"):
            run_cells(tmp_path, cells, {}, cluster=short, progress=end_it)
        assert len(list(tmp_path.glob("*.parquet"))) == 2
        game = game_of("palma")
        with pytest.raises(ClusterGone, match="went away; the game had come to round 1"):
            simulate_on_tiles(
                *game.everything(), names=streams(5, game.keys), few=0, player=OnCluster(short),
                tile_of_region=np.zeros(game.regions, dtype=np.int64),
            )  # fmt: skip


def test_a_cluster_somewhere_is_used_and_goes_on_afterwards(cluster: Cluster, tmp_path: Path) -> None:
    address = cluster.client.scheduler.address.removeprefix("tcp://")
    with connected(address) as other:
        assert run_cells(tmp_path, squares(2), {}, cluster=other)["square"].to_list() == [0, 1]
    assert cluster.answers()


def test_a_cluster_without_workers_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PATIENCE", 0.5)
    with distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as empty:
        expected = r"has no workers; start some with `dask worker"
        with pytest.raises(InputError, match=expected), connected(empty.scheduler_address):
            raise AssertionError


def test_no_cluster_at_an_address_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PATIENCE", 0.5)
    expected = r"There is no cluster at 127\.0\.0\.1:9 .*or take --cluster local"
    with pytest.raises(InputError, match=expected), connected("127.0.0.1:9"):
        raise AssertionError


@pytest.mark.parametrize("name", ["local:0", "local:two", "local:-1"])
def test_a_number_of_processes_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="Expected local, local:N"), connected(name):
        raise AssertionError


def test_without_dask_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"pip install 'palmatch\[dask\]'"), connected("local"):
        raise AssertionError
