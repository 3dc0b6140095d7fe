"""What a budget for private bids buys, on synthetic conferences and on real bids with synthetic affinities.

    python -m benchmarks.conferences [--bids preflib1.in --bids preflib3.in] [--conferences 8] [--runs 4]

A file of bids is a matrix of PrefLib's bids as perturbed-maximization keeps them: 1 yes, 0.5 maybe, 0.25 no answer,
0 no. Affinities that go with them are drawn: a mean for each answer, with noise. Losses are against the optimum of the
weighted sums (both weights 1); the error is one of the mean over conferences, of which each has affinities of its own.
How often a paper is assigned against a bid of -1 is computed from the truth, for this study only. Largest is the
largest probability of an assignment, entropy and support those of all assignments, over bids drawn from the prior.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.sparse import csr_array

import palmatch as pm
from palmatch.data.scores import Scores, read_scores
from palmatch.domains.bids import BidTable
from palmatch.methods.baselines import optimal_welfare
from palmatch.report.style import save
from palmatch.studies.limit import find_limit

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "conferences.png"
EPSILONS = (0.5, 1.0, 2.0, 3.0, 4.0)
METHODS = ("once", "hungarian-once")
SEATS = 3
