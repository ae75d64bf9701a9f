"""Finding Java, resolving jars, and class-data archives."""
