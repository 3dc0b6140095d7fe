"""The commands of the documentation, and where the tests execute each: one table for all of them.

`tests/test_docs.py` runs most commands in one process; `tests/live/test_documented_games.py` plays the parties of live
games, and the explorer, in processes of their own.
"""

import re
import shlex
from datetime import datetime, timedelta
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]

# All of it is run by tests/live/test_operate.py, with services that go on beside it.
OPERATE = ROOT / "docs" / "live-operate.md"

# What makes a command short enough for a test: these options, in place of what the page has.
SMALLER = {
    "audit": "--games 8 --edge 2000",
    "compare": "--runs 1",
    "day": "--start 05:00 --end 05:01 --out day",
    "demo": "--hour 5 --runs 1 --out demo",
    "limit": "--crowds 20 --edge 2000 --epsilon 1",
    "live demo": "--agents 8",
    "reproduce mobility": "--seconds 3 --edges 1000 --runs 1",
    "reproduce papers": "--areas 3 --runs 1",
}
# What a page leaves to the reader, what a test has not, and what would take minutes: words, and those in their place.
INSTEAD = {
    r"--epsilon 0\.[0-9.]+,[0-9.,]+": "--epsilon 1,2",
    r"--trips (FILE|yellow_tripdata_2016-01\.csv)": "--trips trips.csv",
    r"--cluster (HOST:8786|local:4)": "--cluster local:1",
}
# Times of a live game; the first stands on the page, the others are defaults.
TIMES = {r"--every 30s": "--every 8s --joining 4s --slot 3s"}

# What is played by several processes: tests/live/test_documented_games.py.
IN_PROCESSES = re.compile(r"palmatch (live (operator|board|resource|device|issuer)|ledger|explore)\b")


def commands_of(page: Path) -> list[str]:
    """Return the commands of a page, from fenced and indented blocks, with continued lines joined.

    Those within a sentence of the README count, too, if they have options.
    """
    text = re.sub(r" *\\\n\s*", " ", page.read_text())
    fenced = "\n".join(re.findall(r"```bash\n(.*?)```", text, flags=re.DOTALL))
    indented = "\n".join(re.findall(r"^ {4}(?=(?:time )?palmatch )(.*)$", text, flags=re.MULTILINE))
    inline = "\n".join(re.findall(r"`(palmatch \w[^`\n]* --\w[^`\n]*)`", text)) if page == README else ""
    lines = [
        line.removeprefix("time ").split("   #")[0].split("  #")[0].strip()
        for line in "\n".join((fenced, indented, inline)).splitlines()
    ]
    return [line for line in lines if line.startswith("palmatch ")]


COMMANDS = [(page, line) for page in PAGES if page != OPERATE for line in commands_of(page)]


def replaced(line: str, instead: dict[str, str]) -> str:
    for words, others in instead.items():
        line = re.sub(rf"{words}\b", others, line)
    return line


def shortened(line: str) -> str:
    """Return a command with the options that make it short; commands that differ in these alone become one."""
    words = shlex.split(replaced(line, INSTEAD))[1:]
    smaller = SMALLER.get(" ".join(words[:2]), SMALLER.get(words[0], ""))
    options = dict(zip(*[iter(shlex.split(smaller))] * 2, strict=True))
    if words[0] == "reproduce" and "--cluster" not in words:
        options["--processes"] = "1"
    kept = [word for word, before in zip(words, ["", *words], strict=False) if not {word, before} & set(options)]
    return shlex.join([*kept, *(word for option in options.items() for word in option)])


def kind_of(line: str) -> tuple[str, ...]:
    """Return what tells a command from others: its words before any option, by their endings, and its options."""
    words = shlex.split(line)
    return (words[0], *sorted({word for word in words if word.startswith("--")}), *(w[-4:] for w in words if "." in w))


# Commands that differ in values alone are run once.
_KINDS = {
    kind_of(line): line for line in (shortened(line) for _, line in reversed(COMMANDS) if not IN_PROCESSES.match(line))
}
_SHORT = list(reversed(_KINDS.values()))
# Live games mostly wait: they are run beside the other tests of tests/live.
LIVE = [line for line in _SHORT if line.startswith("live ")]
OTHERS = [line for line in _SHORT if not line.startswith("live ")]


def write_trips(path: Path) -> None:
    """Write taxi trips of the form that the pages ask for: one every second about each time that a page names."""
    lines = [line for _, line in COMMANDS if "--trips" in line]
    times = {f"2016-01-15 {hour}:00:00" for hour in ("05", "08", "11", "19")}
    times.update(time for line in lines for time in re.findall(r'--at "(.*?)"', line))
    header = "tpep_pickup_datetime,tpep_dropoff_datetime,pickup_longitude,pickup_latitude"
    rows = [f"{header},dropoff_longitude,dropoff_latitude"]
    seconds = {datetime.fromisoformat(time) + timedelta(seconds=step) for time in times for step in range(-60, 60)}
    for number, at in enumerate(sorted(seconds)):
        rows.append(f"{at},{at},-73.98{number % 9},40.75{number % 7},-73.99,40.74")
    path.write_text("\n".join(rows) + "\n")
