"""Nephele Streaming beside its source."""
