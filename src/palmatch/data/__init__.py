"""Where records come from: the user's files, a synthetic city and a synthetic conference.

Examples
--------
>>> import palmatch as pm
>>> night = pm.data.city.batch(5.0)
>>> len(night.requests), len(night.vehicles)
(17, 17)

References
----------
- [RFC 4180][] and [Apache Parquet][]: the formats of tables.
- Page "Start in five minutes", [Match your own files][3-match-your-own-files].
"""

from palmatch.data import city, conference, files, scores

__all__ = ["city", "conference", "files", "scores"]
