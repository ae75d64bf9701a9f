"""The CPU left above the minimum accuracies, shared among queries."""
