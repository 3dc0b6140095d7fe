"""Repeated runs of methods on the same problems, with means and standard deviations."""
