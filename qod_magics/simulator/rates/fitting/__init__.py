"""Simulations fitted to recordings of live runs."""
