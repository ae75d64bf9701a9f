"""What a notebook holds: streams, the cluster that they run on, and a controller."""
