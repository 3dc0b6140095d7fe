"""The words of the package, its documentation and its tests: one word for each thing, and no metaphors."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = [
    *(path for kind in ("py", "jinja", "html", "css") for path in (ROOT / "src").rglob(f"*.{kind}")),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "examples").glob("*.ipynb"),
    *(path for folder in ("examples", "benchmarks") for path in (ROOT / folder).rglob("*.py")),
    *ROOT.glob("*.md"),
    *(path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)),
]

# What is wrong, and what to write instead.
WORDS = {
    r"\w*everybody\w*|\beveryone\b": "every agent, all agents",
    r"\b(some|any|no)body\b|\banyone\b": "an agent, any observer, no party",
    # SUMO's elements and interface have this name.
    r"\bpeople\b|(?<![.\"])\bpersons?\b|(?<=\"\"\")persons?\b": "agents",
    r"(?<!new )\bpromise[sd]?\b": "guarantee",
    r"\bgavels?\b|\btalents?\b|\bclans?\b|\bhouses?\b|\bdoors?\b|\barenas?\b|\bthrones?\b": "the thing itself",
    r"(?:^|[.;:] |\"\"\"|# )(?-i:Who|Whoever)\b(?![^.]*\?)": "an agent that ..., the participants",
    r"\bmade[- ]up\b": "synthetic",
    r"^(?:<{7} |={7}$|>{7} )": "one of the two sides of the conflict",
    r"\bprices? (?:of|for) (?:privacy|(?:an |each |every )?actions?)\b": "charge (action); welfare lost (privacy)",
    r"\breport: (?:Report|StageProgress)\b": "progress, for a callback",
}


@pytest.mark.parametrize("wrong", WORDS)
def test_one_word_stands_for_one_thing(wrong):
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in FILES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        # A name of a test is a sentence.
        if re.search(wrong, line.replace("_", " ") if "def test_" in line else line, flags=re.IGNORECASE)
    ]
    assert not found, f"write: {WORDS[wrong]}\n" + "\n".join(found)
