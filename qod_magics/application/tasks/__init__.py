"""The tasks that streams become: their DataFrames, weights, keys, fusion, and what a change means for them."""
