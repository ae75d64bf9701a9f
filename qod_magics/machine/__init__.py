"""The machine that a kernel runs on: its cores, its directories, the user's cache, and what is done at exit."""
