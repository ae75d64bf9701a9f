"""The input of a simulation: clusters, tasks, costs, events and faults, read from JSON and checked."""
