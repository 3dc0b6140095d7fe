"""What the site adds when it is built: the command reference, formulas as MathML, and pages from beside docs/.

It runs inside mkdocs, and in the tests, which ask the same functions whether the pages are current.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import latex2mathml.converter
from mkdocs.structure.files import File, Files
from typer.main import get_command

from palmatch.cli import COMMANDS, app, subcommand

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = "reference/command-line.md"
# Files beside docs/ that are pages of the site as well, and where they go.
BESIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
_SOURCE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+((?:src|tests|benchmarks|examples)/[^)#]+)(?:#[^)]*)?\)")
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', flags=re.DOTALL)


def on_config(config: Any) -> Any:
    """Add pages that the navigation does not name yet, so that none is out of reach."""
    named = set(re.findall(r"[\w/-]+\.md", str(config.nav)))
    pages = sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))
    omitted = [page for page in pages if page not in named]
    config.nav = [*config.nav, {"More": omitted}] if omitted else config.nav
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are not files of docs/."""
    files.append(File.generated(config, REFERENCE, content=command_reference()))
    for name, place in BESIDE.items():
        text = (ROOT / name).read_text()
        files.append(File.generated(config, place, content=beside(text)))
    return files


def beside(text: str) -> str:
    """Return a page of the project's root with its links as seen from docs/."""
    text = re.sub(r"\]\(docs/", "](", text)
    for name, place in BESIDE.items():
        text = text.replace(f"]({name})", f"]({place})")
    return re.sub(r"\[([^\]]+)\]\(((?:src|tests|benchmarks|examples)/[^)]*|LICENSE|CITATION\.cff)\)", _named, text)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Name a source file where a page links to it: the site holds pages, not sources."""
    markdown = _SOURCE.sub(_named, markdown)
    for name, place in BESIDE.items():
        markdown = re.sub(rf"\]\(\.\./((?:\.\./)*){re.escape(name)}\)", rf"](\g<1>{place})", markdown)
    return markdown


def _named(found: re.Match[str]) -> str:
    text, path = found[1], found[2]
    return text if text.strip("`") == path else f"{text} (`{path}`)"


def on_page_content(content: str, **_: Any) -> str:
    """Write formulas as MathML, which browsers render without a script."""
    return _FORMULA.sub(lambda found: mathml(html.unescape(found[2]), block=found[1] == "div"), content)


def mathml(formula: str, *, block: bool = False) -> str:
    """Return a LaTeX formula as MathML."""
    written = latex2mathml.converter.convert(formula.strip(), display="block" if block else "inline")
    return f'<div class="formula">{written}</div>' if block else written


def command_reference() -> str:
    """Return the page of every subcommand and option, from the command itself."""
    parts = [
        "# Command line",
        "This page is written by the command itself when the site is built. [The command](../commands.md) explains "
        "what the subcommands do and how their results are read.",
    ]
    parts += [part for name in COMMANDS for part in _described((name,), subcommand(name))]
    return "\n\n".join(parts) + "\n"


def options_of_palmatch() -> list[str]:
    """Return the options that come before a subcommand."""
    return [name for option in get_command(app).params for name in option.opts]


def _described(words: tuple[str, ...], command: Any) -> list[str]:
    under = getattr(command, "commands", None)
    name = " ".join(("palmatch", *words))
    parts = [f"{'#' * (1 + len(words))} {name}", _prose(command.help)]
    if under is not None:
        return parts + [part for word, each in under.items() for part in _described((*words, word), each)]
    arguments = [option for option in command.params if option.param_type_name == "argument"]
    usage = " ".join([name, "[OPTIONS]", *(each.name.upper() for each in arguments)])
    parts.append(f"```text\n{usage}\n```")
    parts += [_paragraph(text) for text in (command.epilog or "").split("\n\n") if text]
    rows = [f"| {_names(option)} | {_cell(option)} |" for option in command.params if not option.hidden]
    parts.append("\n".join(["| option | meaning |", "|---|---|", *rows]))
    return parts


def _paragraph(text: str) -> str:
    """Return a paragraph of the help; an example stands by itself."""
    example = re.fullmatch(r"Examples?: (palmatch .*)", _prose(text))
    return f"```bash\n{example[1]}\n```" if example else _prose(text)


def _prose(text: str | None) -> str:
    return " ".join((text or "").split())


def _names(option: Any) -> str:
    if option.param_type_name == "argument":
        return f"`{option.name.upper()}`"
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    return names if option.is_flag else f"{names} *{option.metavar or option.name}*"


def _cell(option: Any) -> str:
    text = _prose(getattr(option, "help", "")).replace("|", "\\|").replace("<", "&lt;")
    default = option.default
    if option.param_type_name == "argument" or default is None or callable(default) or isinstance(default, bool):
        return text
    values = default if isinstance(default, list | tuple) else [default]
    shown = ", ".join(str(getattr(value, "value", value)) for value in values)
    return f"{text} Default: `{shown}`." if shown and "[default" not in text else text
