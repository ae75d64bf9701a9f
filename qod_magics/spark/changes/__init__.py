"""Changes of what runs: deployments, moves, rescaling, fusing, and recovery from failures."""
