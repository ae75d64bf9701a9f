"""Running queries, one for each task instance: their batches, modes and CPU."""
