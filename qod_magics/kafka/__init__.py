"""Kafka: an embedded or external cluster, its topics and offsets, input rates, the data injector."""
