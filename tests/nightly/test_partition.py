"""Tiles by the methods that `make test` leaves out, and on a cluster that loses a worker."""

import os
from dataclasses import replace

import pytest

from palmatch.studies import partition as tiles
from palmatch.studies.partition import match_partitioned
from studies import test_partition as by_once
from studies.test_partition import Here, contents, kill_at_first_report, partition, rows_of, small_tiles, write

__all__ = ["small_tiles"]


@pytest.mark.parametrize("method", sorted({*tiles.MATCHERS} - {"once"}))
def test_tiles_are_matched_as_well_as_the_whole(method, tmp_path):
    by_once.test_tiles_are_matched_as_well_as_the_whole(method, tmp_path)


def test_a_worker_of_a_cluster_that_dies_changes_nothing(tmp_path):
    pytest.importorskip("distributed", reason="distributed is not installed: pip install 'palmatch[dask]'")
    from palmatch.cluster import connected

    files, seen = write(tmp_path, *rows_of()), {}
    with connected("local:2") as cluster:
        pids = list(cluster.client.run(os.getpid).values())
        kill = kill_at_first_report(tmp_path / "there", lambda: pids, seen)
        there = match_partitioned(*files, partition(tmp_path / "there"), cluster, seed=3, score=True)
        kill.join()
    here = match_partitioned(*files, partition(tmp_path / "here"), Here(), seed=3, score=True)
    assert contents(tmp_path / "there") == contents(tmp_path / "here")
    assert replace(there, files=()) == replace(here, files=())
