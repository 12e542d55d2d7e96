"""Clients, connections and security of Kafka. The source of a pipeline is in ``sources/kafka``."""
