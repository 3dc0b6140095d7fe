"""What the docs say is true: their Python runs, their links lead somewhere, and they know every word and method."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
from pathlib import Path

import pytest

import palmatch as pm
from palmatch import methods
from palmatch.cli.app import command_words
from palmatch.domains import mobility, table
from palmatch.studies import compare

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_python_on_a_page_runs(page):
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL):
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(block, str(page), "exec"), {"__name__": "docs"})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_on_a_page_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_every_word_of_the_command_is_documented():
    text = (ROOT / "docs" / "commands.md").read_text()
    words = [" ".join(words) for words in command_words()]
    assert words
    for word in words:
        assert f"palmatch {word}" in text, word


def test_every_method_is_documented():
    text = (ROOT / "docs" / "commands.md").read_text()
    for method in pm.METHODS:
        assert f"`{method}`" in text, method


@pytest.mark.parametrize("module", [mobility, table, methods, compare], ids=lambda module: module.__name__)
def test_examples_in_docstrings_hold(module):
    failures, tried = doctest.testmod(module)
    assert tried > 0
    assert failures == 0
