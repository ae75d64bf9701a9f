"""The machine that a kernel runs on: cores, directories and processes that end with it, and the user's cache."""
