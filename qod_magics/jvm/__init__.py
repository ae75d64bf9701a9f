"""Finding Java, resolving jars, and archives of Java classes."""
