"""Kafka for whoever talks to it: clients, connections, security. What a pipeline reads stands in ``sources/kafka``."""
