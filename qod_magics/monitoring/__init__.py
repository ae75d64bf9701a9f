"""What others are told of a session: alarms and their hooks, metrics for Prometheus, and the door that serves them."""
