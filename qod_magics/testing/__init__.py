"""For whoever writes a policy: random simulations with loads that are known, runs of them, and what must hold.

`scenarios` needs hypothesis (the extra `test`); the rest nothing that the package does not.
"""
