"""What a cell declares of one stream: its options, its sink, its input."""
