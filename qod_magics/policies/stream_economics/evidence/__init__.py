"""Evidence beyond the loads of a snapshot, such as backlogs: when to shed, and when to trust estimates."""
