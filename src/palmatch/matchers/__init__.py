"""Matchers: from what was revealed to a matching. They know lists of values, public limits and public draws."""
