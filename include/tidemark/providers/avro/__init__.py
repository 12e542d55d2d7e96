"""Avro records: with the id of their schema in a registry, or all with the schema of one file."""
