"""Changes of a simulated cluster while it runs: instances, task managers, parallelism, fusing."""
