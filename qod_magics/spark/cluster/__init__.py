"""What runs where: task managers, instances, the topics between tasks, and the books of rows."""
