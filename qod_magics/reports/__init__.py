"""Recordings as tables, charts and pages."""
