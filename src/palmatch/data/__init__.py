"""Where records come from: the user's files, a made-up city and a made-up conference."""

from palmatch.data import city, conference, files

__all__ = ["city", "conference", "files"]
