"""What every method does on fixed problems stays what it was, unless a commit says otherwise."""

from __future__ import annotations

import json

import pytest

import frozen


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    return frozen.hashes()


@pytest.mark.parametrize("case", json.loads(frozen.FILE.read_text()))
def test_a_method_gives_the_matching_that_it_gave(case: str, found: dict[str, str]) -> None:
    assert found[case] == json.loads(frozen.FILE.read_text())[case], f"{case}: python tests/frozen.py, and say why"
