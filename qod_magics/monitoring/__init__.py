"""Watch a session from outside: alarms, hooks that they call, and metrics for Prometheus."""
