"""Running queries: one for each task instance, its batches, its mode, and what it costs."""
