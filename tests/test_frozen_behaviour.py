"""What every method does on fixed problems stays what it was, unless a commit says otherwise."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import frozen


@pytest.fixture(scope="module")
def found():
    return frozen.hashes()


@pytest.mark.parametrize("case", json.loads(frozen.FILE.read_text()))
def test_a_method_gives_the_matching_that_it_gave(case, found):
    assert found[case] == json.loads(frozen.FILE.read_text())[case], f"{case}: python tests/frozen.py, and say why"


def test_a_processor_with_fewer_instructions_gives_the_same_matchings(found):
    # numpy computes exponentials and logarithms by other code there, with other last bits.
    wider = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    if not wider:
        pytest.skip("this processor has no instructions that numpy could do without")
    program = "import frozen, json; print(json.dumps(frozen.hashes()))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=frozen.FILE.parent,
        env=os.environ | {"NPY_DISABLE_CPU_FEATURES": " ".join(wider)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    other = json.loads(done.stdout)
    assert [case for case in found if other[case] != found[case]] == []
