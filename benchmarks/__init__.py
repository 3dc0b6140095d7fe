"""Speed as a ratio, measured in one run against a stated peer. Nothing here is asserted in a test."""
