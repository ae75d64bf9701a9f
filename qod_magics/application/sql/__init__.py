"""SQL texts, read by their tokens: the tables they name, calls, and the estimates that stand for aggregates."""
