"""What "utility" and "region" mean somewhere: a city, a conference, pairs of agents, or a table from elsewhere."""

from palmatch.domains import bids, mobility, pairs, papers, scores, table

__all__ = ["bids", "mobility", "pairs", "papers", "scores", "table"]
