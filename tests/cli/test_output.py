"""Where the output goes: a reader who leaves early, one who was never there, a disk that is full."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PALMATCH = Path(sys.executable).with_name("palmatch")


def run_into(output: int, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PALMATCH, *words], stdout=output, stderr=subprocess.PIPE, text=True, check=False)


@pytest.mark.parametrize("words", [("--help",), ("--version",)])
def test_a_reader_who_leaves_early_ends_the_command_quietly_as_in_any_pipe(words: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = run_into(writing, *words)
    finally:
        os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is always full")
def test_a_full_disk_is_one_sentence() -> None:
    with Path("/dev/full").open("w") as full:
        ended = run_into(full.fileno(), "--version")
    assert ended.returncode == 2
    assert ended.stderr.startswith("palmatch: the output: cannot be written (No space left")
    assert ended.stderr.count("\n") == 1


def test_an_output_that_was_closed_beforehand_is_no_mistake() -> None:
    ended = subprocess.run(
        f"{PALMATCH} ledger verify none.ledger >&-; {PALMATCH} --version >&-",
        shell=True,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert ended.returncode == 0
    assert "Traceback" not in ended.stderr
