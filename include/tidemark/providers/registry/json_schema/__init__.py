"""JSON with Confluent's framing and a schema registry."""
