"""Recipes of streams, in SQL or Python: what they read, and the DataFrame that they make of it."""
