"""Figures and the self-contained page. Shows records; computes nothing that a study should have computed."""
