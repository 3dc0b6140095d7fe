"""What "utility" and "region" mean somewhere: a city, a conference, or a table that comes from elsewhere."""

from palmatch.domains import mobility, papers, table

__all__ = ["mobility", "papers", "table"]
