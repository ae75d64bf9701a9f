"""The plans of queries: how a recipe becomes one, with its shedders and dials, and what a plan tells."""
