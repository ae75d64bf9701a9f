"""A model of clusters that are scaled, for comparisons of policies that scale."""
