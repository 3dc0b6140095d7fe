"""On a cluster everything comes out as on one machine, also when workers die; when it goes away, a sentence says so."""

import sys

import pytest

from palmatch import cluster as connection
from palmatch.cluster import connected
from palmatch.errors import InputError, PalmatchError
from palmatch.studies.tasks import Task, run_tasks
from worker_calls import broken, mistaken, slow, square

distributed = pytest.importorskip("distributed", reason="distributed is not installed: pip install 'palmatch[dask]'")


def squares(count):
    return [Task(f"the square of {number}", square, (number,), weight=number) for number in range(count)]


@pytest.fixture(scope="module")
def cluster():
    with connected("local:2") as here:
        yield here


def test_cells_on_a_cluster_are_the_files_of_one_machine(cluster, tmp_path):
    seen: list[tuple[int, int]] = []
    there = run_tasks(
        tmp_path / "there", squares(5), {"seed": 1}, executor=cluster, progress=lambda *done: seen.append(done)
    )
    assert there["square"].to_list() == [0, 1, 4, 9, 16]
    assert there["process"].all()
    assert seen == [(done, 5) for done in range(6)]
    again = run_tasks(
        tmp_path / "there", squares(5), {"seed": 1}, executor=cluster, progress=lambda *done: seen.append(done)
    )
    assert (again.equals(there), seen[6:]) == (True, [(5, 5)])


def test_a_mistake_on_a_worker_is_the_same_sentence_and_what_is_done_is_kept(cluster, tmp_path):
    for work, error, words in ((mistaken, InputError, "number 13 cannot"), (broken, RuntimeError, "“bad” failed")):
        parts = [*squares(3), Task("bad", work, (13,), weight=-1.0)]
        with pytest.raises(error, match=words):
            run_tasks(tmp_path, parts, {}, executor=cluster)
        assert len(list(tmp_path.glob("*.parquet"))) == 3


def test_a_cluster_that_goes_away_ends_in_a_sentence_and_what_is_done_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(connection, "PATIENCE", 1.0)
    parts = [*squares(2), Task("a long one", slow, (7,), weight=-1.0)]
    with connected("local:1") as short:

        def end_it(done, _):
            if done == 2:
                short.client.cluster.close()

        with pytest.raises(
            PalmatchError, match=r"the cluster, is gone .*what was finished is kept, and the same command"
        ):
            run_tasks(tmp_path, parts, {}, executor=short, progress=end_it)
        assert len(list(tmp_path.glob("*.parquet"))) == 2


def test_a_cluster_somewhere_is_used_and_goes_on_afterwards(cluster, tmp_path):
    address = cluster.client.scheduler.address.removeprefix("tcp://")
    with connected(address) as other:
        assert run_tasks(tmp_path, squares(2), {}, executor=other)["square"].to_list() == [0, 1]
    assert cluster.is_alive()


def test_a_cluster_without_workers_is_one_sentence(monkeypatch):
    monkeypatch.setattr(connection, "PATIENCE", 0.5)
    with distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as empty:
        expected = r"has no workers; start some with `dask worker"
        with pytest.raises(InputError, match=expected), connected(empty.scheduler_address):
            raise AssertionError


def test_no_cluster_at_an_address_is_one_sentence(monkeypatch):
    monkeypatch.setattr(connection, "PATIENCE", 0.5)
    expected = r"There is no cluster at 127\.0\.0\.1:9 .*or take --cluster local"
    with pytest.raises(InputError, match=expected), connected("127.0.0.1:9"):
        raise AssertionError


@pytest.mark.parametrize("name", ["local:0", "local:two", "local:-1"])
def test_a_number_of_processes_that_is_none_is_refused(name):
    with pytest.raises(InputError, match="Expected local, local:N"), connected(name):
        raise AssertionError


def test_without_dask_the_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"pip install 'palmatch\[dask\]'"), connected("local"):
        raise AssertionError
