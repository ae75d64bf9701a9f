"""What happens to a query from its first start to its end: states, events and instructions. Pure."""
