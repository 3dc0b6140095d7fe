"""A study that is stopped goes on where it was, on any number of processes, and never mixes settings."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor
from pathlib import Path

import polars as pl
import pytest

from palmatch.errors import InputError, PalmatchError
from palmatch.studies import tasks
from palmatch.studies.tasks import Task, check_settings, run_tasks, started_processes

HERE = Path(__file__)
SETTINGS = {"seed": 7, "runs": 3}


def square(number, log=None):
    if log is not None:
        with log.open("a") as lines:
            lines.write(f"{number}\n")
    return pl.DataFrame({"number": [number], "square": [number**2]})


def interrupted(number):
    raise KeyboardInterrupt


def mistaken(number):
    raise InputError(f"The number {number} cannot be used.")


def killed(number):
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def endless(number, log=None):
    square(number, log)
    time.sleep(600)
    raise AssertionError


def squares(count, log=None):
    return [Task(f"the square of {number}", square, (number, log), weight=number) for number in range(count)]


def test_rows_come_in_the_order_of_the_cells_whatever_takes_longest(tmp_path):
    rows = run_tasks(tmp_path, squares(5), SETTINGS, processes=1)
    assert rows["square"].to_list() == [0, 1, 4, 9, 16]


def test_what_is_done_is_not_done_again(tmp_path):
    log = tmp_path / "log"
    first = run_tasks(tmp_path / "cells", squares(3, log), SETTINGS, processes=1)
    again = run_tasks(tmp_path / "cells", squares(5, log), SETTINGS, processes=1)
    assert sorted(log.read_text().split()) == ["0", "1", "2", "3", "4"]
    assert again[:3].equals(first)


def test_ctrl_c_loses_only_the_cell_under_way(tmp_path):
    log = tmp_path / "log"
    stopped = [*squares(3, log)[1:], Task("the square of 0", interrupted, (0,), weight=0.5)]
    with pytest.raises(KeyboardInterrupt):
        run_tasks(tmp_path / "cells", stopped, SETTINGS, processes=1)
    assert log.read_text().split() == ["2", "1"]
    rows = run_tasks(tmp_path / "cells", squares(3, log), SETTINGS, processes=1)
    assert rows["square"].to_list() == [0, 1, 4]
    assert log.read_text().split() == ["2", "1", "0"]


def test_a_kill_loses_only_the_cell_under_way(tmp_path):
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from test_tasks import SETTINGS, Task, endless, run_tasks, squares\n"
        "tasks = [*squares(3)[1:], Task('the square of 0', endless, (0,), weight=0.5)]\n"
        "run_tasks(Path(sys.argv[2]), tasks, SETTINGS, processes=1)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", script, str(HERE.parent), str(tmp_path / "cells")])
    try:
        while len(list((tmp_path / "cells").glob("*.parquet"))) < 2:
            assert child.poll() is None
            time.sleep(0.05)
    finally:
        child.kill()
        child.wait()
    log = tmp_path / "log"
    rows = run_tasks(tmp_path / "cells", squares(3, log), SETTINGS, processes=1)
    assert rows["square"].to_list() == [0, 1, 4]
    assert log.read_text().split() == ["0"]


def test_ctrl_c_ends_a_study_while_all_its_processes_compute(tmp_path):
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from test_tasks import SETTINGS, Task, endless, run_tasks\n"
        "tasks = [Task(str(number), endless, (number, Path(sys.argv[3]))) for number in range(3)]\n"
        "run_tasks(Path(sys.argv[2]), tasks, SETTINGS, processes=2)\n"
    )
    words, log = (str(HERE.parent), str(tmp_path / "cells")), tmp_path / "log"
    with subprocess.Popen([sys.executable, "-c", script, *words, str(log)], stderr=subprocess.DEVNULL) as child:
        try:
            while not log.exists() or len(log.read_text().split()) < 2:
                assert child.poll() is None
                time.sleep(0.05)
            child.send_signal(signal.SIGINT)
            assert child.wait(120) == -signal.SIGINT
        finally:
            child.kill()


def test_other_settings_are_refused_with_both_values_and_nothing_is_touched(tmp_path):
    run_tasks(tmp_path, squares(2), SETTINGS, processes=1)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(InputError, match=r"other settings: runs is 3 there and 4 here; choose another folder"):
        run_tasks(tmp_path, squares(4), SETTINGS | {"runs": 4}, processes=1)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_study_may_grow(tmp_path):
    run_tasks(tmp_path, squares(2), SETTINGS, processes=1)
    rows = run_tasks(tmp_path, squares(3), SETTINGS | {"another batch": "abc"}, processes=1)
    assert len(rows) == 3
    with pytest.raises(InputError, match="another batch is abc there and xyz here"):
        run_tasks(tmp_path, squares(3), SETTINGS | {"another batch": "xyz"}, processes=1)


def test_a_damaged_cell_is_computed_again(tmp_path):
    whole = run_tasks(tmp_path, squares(3), SETTINGS, processes=1)
    damaged = tmp_path / squares(3)[1].file_name
    damaged.write_bytes(damaged.read_bytes()[:20])
    assert run_tasks(tmp_path, squares(3), SETTINGS, processes=1).equals(whole)


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_a_folder_with_unreadable_settings_is_refused_with_a_sentence(tmp_path, text):
    (tmp_path / "settings.json").write_text(text)
    with pytest.raises(InputError, match="found no settings of a study"):
        run_tasks(tmp_path, squares(1), SETTINGS, processes=1)


def test_a_file_in_place_of_the_folder_is_refused_with_a_sentence(tmp_path):
    (tmp_path / "cells").write_text("")
    with pytest.raises(InputError, match="cannot be made a folder"):
        run_tasks(tmp_path / "cells", squares(1), SETTINGS)


def test_several_processes_give_the_same_rows_and_tell_of_each_cell(tmp_path):
    seen: list[tuple[int, int]] = []
    alone = run_tasks(tmp_path / "one", squares(4), SETTINGS, processes=1)
    together = run_tasks(tmp_path / "two", squares(4), SETTINGS, processes=2, progress=lambda *done: seen.append(done))
    assert together.equals(alone)
    assert seen == [(done, 4) for done in range(5)]
    names = {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()}
    assert {path.name: path.read_bytes() for path in (tmp_path / "two").iterdir()} == names


def test_a_mistake_in_another_process_is_the_same_sentence(tmp_path):
    parts = [Task("a mistake", mistaken, (13,), weight=9), *squares(2)]
    with pytest.raises(InputError, match="The number 13 cannot be used"):
        run_tasks(tmp_path, parts, SETTINGS, processes=2)


def test_a_process_that_is_killed_ends_in_a_sentence_and_nothing_hangs(tmp_path):
    parts = [Task("too large", killed, (1,), weight=9), Task("another", endless, (2,), weight=8)]
    with pytest.raises(PalmatchError, match=r"is gone .*the same command goes on"):
        run_tasks(tmp_path, parts, SETTINGS, processes=2)


def test_calls_end_also_where_a_process_was_killed_before_they_were_made():
    with started_processes(2) as pool:
        assert isinstance(pool.submit(killed, 1).exception(), BrokenExecutor)
        later = [pool.submit(square, number) for number in range(4)]
        assert {type(one.exception()) for one in later} <= {BrokenExecutor, type(None)}


def test_no_process_at_all_is_refused(tmp_path):
    with pytest.raises(InputError, match="processes=0"):
        run_tasks(tmp_path, squares(1), SETTINGS, processes=0)


def test_cells_of_other_code_are_refused(tmp_path, monkeypatch):
    check_settings(tmp_path, {"seed": 1})
    check_settings(tmp_path, {"seed": 1})
    monkeypatch.setattr(tasks, "code_digest", lambda: "another")
    with pytest.raises(InputError, match="other settings: code is"):
        check_settings(tmp_path, {"seed": 1})
