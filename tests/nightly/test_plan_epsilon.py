"""What no private method reaches, by certificates of several losses."""

import numpy as np

import palmatch as pm
from palmatch.studies.plan import plan_epsilon


def test_what_no_private_method_reaches_is_said_by_the_certificate_though_crowds_are_lucky():
    """Twelve types, each of which wants a resource that has room for all: what a report tells decides what is lost."""
    types = 0.05 + 0.9 * np.eye(12)
    crowd = pm.table.problem(types, ["here"] * 12, {"here": types}, capacity=12)
    for loss, lucky in ((1e-4, True), (2e-3, True), (2e-3, False)):
        found = plan_epsilon(crowd, loss=loss, crowds=4 if lucky else 40, seed=1)
        assert found.epsilon is None
        assert found.limit > loss
        assert found.sentence.startswith(f"No private method loses at most {100 * loss:g} % here: by the certificate")
    assert plan_epsilon(crowd, loss=3e-3, crowds=4, seed=1).limit <= 3e-3
