"""Recordings of runs: reading, judging, comparing and replaying them."""
