"""A private mechanism of one's own: k-ary randomised response over the possible types of a region.

palmatch match agents.csv vehicles.csv --method k_ary:response --out pairs.csv
palmatch audit agents.csv vehicles.csv --method k_ary:response --games 2000 --out audit
"""

from functools import partial

import numpy as np

import palmatch as pm
from palmatch.mechanisms.channel import make_channel, randomised_response
from palmatch.methods.reports import channel_reports, optimal


def k_ary(region, epsilon, prior):
    """Report the own type e^ε times as often as any other type of the region."""
    types = len(region.types)
    return make_channel(region, np.arange(types), randomised_response(types, epsilon), prior=prior)


response = pm.Method(
    "k-ary",
    "the optimum of a centre on k-ary randomised response",
    mechanism=partial(channel_reports, make=k_ary),
    matcher=optimal,
    reveals="one type of the region, the own one more often",
    parts=("k-ary", "optimal"),
    centre=True,
    rounds=False,
    units=True,
)
