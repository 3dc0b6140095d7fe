"""The explorer in the browser: scenes that are played on request, and the small server that feeds the page."""
