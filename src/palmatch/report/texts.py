"""The sentences of a page: a file for each page beside the template, into which its numbers are filled."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files

from jinja2 import Environment, StrictUndefined

from palmatch.report.phrases import counted, percent

# What the public numbers of a method are called.
SETTING_WORDS = {
    "epsilon": "budget ε of agents that bring none",
    "delta": "failure probability δ",
    "order": "Rényi order minus one, λ",
    "truth_selection": "truth when selecting, ζ_S",
    "truth_backoff": "truth when backing off, ζ_B",
    "gamma": "least back-off, γ",
    "noise": "noise when selecting",
    "backoff_noise": "noise when backing off",
    "step": "what a bid of once adds",
}

_BLANK = re.compile(r"\n\s*\n")
_PART = re.compile(r"^# (\w+)\n", flags=re.MULTILINE)


def render_texts(page: str, **facts: object) -> dict[str, tuple[str, ...]]:
    """Return the paragraphs of the parts of `page.txt.jinja`, each of which begins with `# name`."""
    source = files("palmatch.report").joinpath(f"{page}.txt.jinja").read_text(encoding="utf-8")
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_one_line)
    environment.filters |= {"counted": counted, "percent": percent, "listed": listed, "short": short}
    _, *parts = _PART.split(environment.from_string(source).render(facts))
    return {
        name: tuple(
            re.sub(r"[ \n]+", " ", paragraph).strip() for paragraph in re.split(r"\n\s*\n", text) if paragraph.strip()
        )
        for name, text in zip(parts[::2], parts[1::2], strict=True)
    }


def _one_line(value: object) -> object:
    """Keep what comes from outside from beginning a part or a paragraph."""
    return value.replace("\n", " ") if isinstance(value, str) else value


def listed(values: Sequence[object]) -> str:
    """Return values with commas and an "and"."""
    texts = [str(value) for value in values]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def short(number: float) -> str:
    """Return a number without a decimal that is zero."""
    return f"{number:,.0f}" if number == round(number) else f"{number:,.1f}"


def seed_in_words(seed: int | None) -> str:
    """Return a seed, or that there is none."""
    return "none: fresh randomness" if seed is None else f"{seed} (a simulation)"
