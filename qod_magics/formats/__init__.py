"""What the bytes of a record's value are: the protocol `Format`, and a module for each format."""
