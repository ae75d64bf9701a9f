"""Finding Java, resolving jars, and child processes that never outlive the kernel."""
