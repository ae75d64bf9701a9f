"""Costs of tasks and of micro-batches, learned from reports."""
