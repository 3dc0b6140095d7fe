"""Packages from npm that tests compare with: installed once, in these versions, beside the tests' Python."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

PACKAGES = ("@asyncapi/parser@3.6.3", "@cloudflare/privacypass-ts@0.8.1")


def node_packages() -> Path:
    """The folder of the packages; skips where there is no npm, or no way to its registry."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    folder = Path(sys.prefix) / "npm" / sha256(json.dumps(PACKAGES).encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            # Nothing that a package brings is run while it is installed.
            command = [npm, "install", "--prefix", folder, "--ignore-scripts", "--no-audit", "--no-fund", *PACKAGES]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.skip(f"packages of npm are not installed: {done.stderr.strip()[-300:]}")
            (folder / "complete").touch()
    return folder / "node_modules"


class Node:
    """A program in node that answers one line of JSON with another, until it is left."""

    def __init__(self, program: Path, *arguments: object) -> None:
        command = [shutil.which("node") or "node", program, *map(str, arguments)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=60)

    def ask(self, **question: Any) -> Any:
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the program in node has failed: its reason is above"
        return json.loads(answer)
