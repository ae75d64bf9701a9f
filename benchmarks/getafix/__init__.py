"""The evaluation of Getafix: `python -m benchmarks.getafix EXPERIMENT`."""
