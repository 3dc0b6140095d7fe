"""The command under stress: Ctrl-C, a disk that is full, an output without Greek, a narrow terminal."""

import io
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from importlib import import_module
from itertools import product
from pathlib import Path

import pytest

from palmatch.data.files import write_rows
from running import run_line as run
from running import split

# Several commands of one process, since starting takes longer than they do; nothing reads their output.
INTO_A_CLOSED_PIPE = """
import json, os, sys
from palmatch.cli import main
reading, writing = os.pipe()
os.close(reading)
for words in json.loads(sys.argv[1]):
    sys.argv, status = ["palmatch", *words], 0
    os.dup2(writing, 1)
    try:
        main()
    except SystemExit as end:
        status = end.code or 0
    sys.stdout.flush()
    print(words[0], status, file=sys.stderr)
"""


def outside(*words, folder, **more):
    command = [sys.executable, "-m", "palmatch", *split(words)]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False, **more)


def test_ctrl_c_is_one_line_and_status_130(town, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("palmatch.cli.compare.compare_methods", interrupted)
    told = run("compare agents.csv vehicles.csv", folder=town)
    assert (told.returncode, told.stdout, told.stderr) == (130, "", "palmatch: stopped.\n")


def test_ctrl_c_of_a_terminal_ends_a_server_with_one_line(town):
    with subprocess.Popen(
        [sys.executable, "-m", "palmatch", "explore", "--no-open"],
        cwd=town,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as running:
        assert b"The explorer is at" in running.stdout.readline()
        os.killpg(running.pid, signal.SIGINT)
        _, told = running.communicate(timeout=60)
    assert told == b"palmatch: stopped.\n"
    assert running.returncode == 130


def test_a_disk_that_fills_up_is_one_sentence_and_leaves_nothing_truncated(town, tmp_path):
    def little_room():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))

    files = (town / "agents.csv", town / "vehicles.csv")
    words = ("compare", *files, "--runs 1 --methods random --json rows.json")
    # Compiled kernels are kept in files too: the first run writes them, the second one has the little room.
    assert run(*words, folder=tmp_path).returncode == 0
    (tmp_path / "rows.json").write_text("what was there before")
    ended = outside(*words, folder=tmp_path, preexec_fn=little_room)
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.decode().startswith("palmatch: rows.json cannot be written (File too large)")
    assert ended.stderr.count(b"\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["rows.json"]
    assert (tmp_path / "rows.json").read_text() == "what was there before"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_an_output_without_greek_letters_gets_them_spelt(town, encoding):
    files = ("agents.csv", "vehicles.csv")
    told = [
        run(*words, folder=town, encoding=encoding)
        for words in (
            ("match", *files, "--out pairs.csv --method palma"),
            ("compare", *files, "--runs 1 --methods published,random"),
            ("plan", *files),
            ("match --help",),
            ("compare", *files, "--runs 1 --methods published,random --json -"),
        )
    ]
    assert [(one.returncode, one.stderr) for one in told] == [(0, "")] * 5
    assert all("eps" in one.stdout for one in told[:4])
    assert json.loads(told[4].stdout)["rows"]


def compute_once(monkeypatch, name):
    """Replace a study by one that is computed the first time only."""
    module, function = name.rsplit(".", 1)
    study, found = getattr(import_module(module), function), list[object]()

    def known(*given, **more):
        if not found:
            found.append(study(*given, **more))
        return found[0]

    monkeypatch.setattr(name, known)


def test_results_are_as_wide_as_columns_say(town, monkeypatch):
    for name in ("audit.audit_problem", "compare.compare_methods", "plan.find_limit", "plan.plan_regions"):
        compute_once(monkeypatch, f"palmatch.cli.{name}")
    files = ("agents.csv vehicles.csv --edge 500",)
    for words, columns in product(
        (
            ("plan", *files),
            ("audit", *files, "--games 10"),
            ("compare", *files, "--runs 1 --methods once,hungarian-region"),
            ("limit", *files, "--crowds 2"),
        ),
        (40, 60, 80, 132),
    ):
        monkeypatch.setenv("COLUMNS", str(columns))
        told = run(*words, folder=town)
        assert told.returncode == 0, told.stderr
        widest = max(map(len, told.stdout.splitlines()))
        assert widest <= columns, words
        # The room that there is is used, where there is enough to say.
        assert words[0] != "plan" or widest > columns - 12
        assert "\N{HORIZONTAL ELLIPSIS}" not in told.stdout


def test_plan_begins_with_what_the_default_method_offers(town):
    told = run("plan agents.csv vehicles.csv --edge 500", folder=town).stdout
    assert re.search(r"^ region +agents +types +ε +reports +best report *$", told.splitlines()[2])
    assert told.index("The default method, `once`") < told.index("The paper's rounds")
    # On 80 columns both tables are whole.
    assert sum(line.startswith(" region ") for line in told.splitlines()) == 2


def test_json_is_written_although_the_reader_of_the_table_has_gone(town):
    files = ("agents.csv", "vehicles.csv")
    words = (
        ("compare", *files, "--runs 1 --methods random"),
        ("limit", *files, "--edge 500 --crowds 2"),
        ("audit", *files, "--edge 500 --games 8"),
    )
    commands = [[*split(some), "--json", f"{some[0]}.json"] for some in words]
    ended = subprocess.run(
        [sys.executable, "-c", INTO_A_CLOSED_PIPE, json.dumps(commands)],
        cwd=town,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stderr.splitlines() == [f"{some[0]} 141" for some in words]
    for some in words:
        assert json.loads((town / f"{some[0]}.json").read_text())


def test_quiet_prints_nothing_but_what_is_asked_for(town):
    words = ("match agents.csv vehicles.csv --quiet",)
    told = run(*words, "--out quiet.csv", folder=town)
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")
    assert (town / "quiet.csv").exists()
    assert json.loads(run(*words, "--out quiet.csv --json -", folder=town).stdout)["matched"]
    assert "matched" in run("match agents.csv vehicles.csv --out quiet.csv", folder=town).stdout


def test_a_dash_is_the_standard_input_and_output(town, monkeypatch):
    words = ("match - vehicles.csv --out - --seed 1",)
    ended = outside(*words, folder=town, input=(town / "agents.csv").read_bytes())
    assert ended.returncode == 0, ended.stderr
    run("match agents.csv vehicles.csv --out pairs.csv --seed 1", folder=town)
    assert ended.stdout.decode() == (town / "pairs.csv").read_text()
    assert b"Guarantee" in ended.stderr
    both = run("match - - --out pairs.csv", folder=town)
    assert both.returncode == 2
    assert "one file can be -" in both.stderr
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"id,lat\na,1\n")))
    wrong = run("match - vehicles.csv --out -", folder=town)
    assert "palmatch: the standard input, line 1: found the columns" in wrong.stderr


def test_more_than_the_memory_holds_is_refused_beforehand_with_the_remedy(tmp_path):
    for name, east in (("agents", 0.0), ("vehicles", 0.001)):
        number = 100_000
        north = [40.6 + 0.3 * (n % 317) / 317 for n in range(number)]
        places = [-74.1 + 0.3 * (n // 317) / 317 + east for n in range(number)]
        write_rows(tmp_path / f"{name}.parquet", {"id": list(range(number)), "lat": north, "lon": places})
    words = ("match agents.parquet vehicles.parquet --out pairs.csv",)
    told = run(*words, folder=tmp_path)
    assert told.returncode == 2
    assert "100,000 agents and 100,000 resources" in told.stderr
    assert "GB" in told.stderr
    assert "--interest 20" in told.stderr
    assert not (tmp_path / "pairs.csv").exists()


def test_papers_whose_possible_reviewers_do_not_fit_are_refused_beforehand(tmp_path, monkeypatch):
    monkeypatch.setattr("palmatch.cli.inputs._free_memory", lambda: 1e4)
    examples = Path(__file__).resolve().parents[2] / "examples"
    for name in ("reviewers.csv", "papers.csv"):
        shutil.copy(examples / name, tmp_path)
    told = run("match reviewers.csv papers.csv --domain papers --out o.csv", folder=tmp_path)
    assert "choose --areas below 3" in told.stderr


def test_settings_that_guarantee_nothing_are_one_line_each_on_the_error_output(town):
    words = ("match agents.csv vehicles.csv --method palma --out pairs.csv",)
    told = run(*words, "--edge 1 --epsilon 11", folder=town)
    assert told.returncode == 0
    lines = told.stderr.splitlines()
    assert [line.partition(": ")[0::2][1].split(":")[0] for line in lines] == ["warning", "warning"]
    assert "squares of 1 m are narrower" in lines[0]
    assert "ε = 11 guarantees next to nothing" in lines[1]
    assert run(*words, folder=town).stderr == ""


def test_a_shell_can_complete_subcommands_and_options(town):
    def completed(words, place):
        asked = {"_PALMATCH_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(place)}
        program = Path(sys.executable).with_name("palmatch")
        ended = subprocess.run([program], cwd=town, capture_output=True, text=True, check=False, env=os.environ | asked)
        return ended.stdout.split()

    assert completed("palmatch re", 1) == ["reproduce"]
    assert completed("palmatch --v", 1) == ["--version"]
    assert completed("palmatch plan --ed", 2) == ["--edge"]


def on_a_terminal(*words, folder, **more):
    """Return what the command writes to the standard error when that is a terminal."""
    ours, its = os.openpty()
    command = [sys.executable, "-m", "palmatch", *split(words)]
    try:
        subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=its, check=True, env=os.environ | more)
    finally:
        os.close(its)
    told = b""
    try:
        while part := os.read(ours, 65536):
            told += part
    except OSError:  # how Linux says that the other end has gone
        pass
    finally:
        os.close(ours)
    return told.decode()


def test_the_first_run_says_that_it_compiles_and_the_second_does_not(town, tmp_path):
    # Of all that is compiled it needs the least.
    words = ("match agents.csv vehicles.csv --method random --out pairs.csv",)
    kept = {"NUMBA_CACHE_DIR": str(tmp_path)}
    assert "compiling kernels for the first time" in on_a_terminal(*words, folder=town, **kept)
    assert "compiling" not in on_a_terminal(*words, folder=town, **kept)
