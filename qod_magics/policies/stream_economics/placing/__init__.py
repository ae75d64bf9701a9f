"""Placement and moves: which instances leave a task manager, and where to."""
