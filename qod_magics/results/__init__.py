"""Results of queries as people look at them: their newest rows, drawn as charts or written as tables. Pure."""
