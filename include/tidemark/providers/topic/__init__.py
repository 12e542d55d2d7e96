"""A Kafka topic as a sink: one transaction for each manifest."""
