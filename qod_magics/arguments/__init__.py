"""Command lines, in notebooks and terminals: the rows of the table of options, the parser made of them, and words."""
