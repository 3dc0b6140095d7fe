"""Pages for people, and `build`, which makes their pictures."""
