"""Cameo's experiments (Xu, chapter 5) in the event engine."""
