"""Where records come from: the user's files, a synthetic city and a synthetic conference."""

from palmatch.data import city, conference, files, scores, tables

__all__ = ["city", "conference", "files", "scores", "tables"]
