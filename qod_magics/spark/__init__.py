"""The live runtime: task managers are Spark sessions, task instances are Structured Streaming queries."""
