"""Avro records: each names its schema by an id in a registry, or all have the schema of one file."""
