"""What is measured of a cluster: batch reports, CPU, offsets, latencies."""
