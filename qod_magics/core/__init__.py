"""The types that everything shares: snapshots, plans, and the two protocols. Pure: no I/O, no clock, no Spark."""
