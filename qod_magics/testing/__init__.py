"""For authors of policies: random simulations with known loads, runs of them, and invariants.

`scenarios` needs hypothesis (the extra `test`); the rest needs nothing beyond the package's dependencies.
"""
