"""A notebook's session: its streams, the cluster they run on, and the controller."""
