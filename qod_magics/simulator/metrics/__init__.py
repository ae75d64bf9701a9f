"""Reports and observations of a simulated cluster, as a live one gives them."""
