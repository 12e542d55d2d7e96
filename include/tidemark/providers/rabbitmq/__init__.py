"""RabbitMQ streams as the source of a pipeline: each stream is a topic with the one partition 0."""
