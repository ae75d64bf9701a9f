"""Explanations of decisions: needs of CPU, and what limits each task."""
