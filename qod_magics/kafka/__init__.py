"""Kafka: an embedded broker or the user's own, its topics, its offsets and what arrives there."""
