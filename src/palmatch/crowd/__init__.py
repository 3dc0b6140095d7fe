"""Very many agents in a city: the tables of all regions in flat arrays, built by compiled loops over a grid.

The same numbers, bit for bit, as `palmatch.neighbourhood` and `palmatch.rounds.tables` give region by region.
"""
