"""The model of Stream Economics: accuracies, the CPU that they need, and the queries that a task reaches."""
