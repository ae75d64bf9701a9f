"""Dirigo beside its source: `python -m benchmarks.dirigo EXPERIMENT`."""
