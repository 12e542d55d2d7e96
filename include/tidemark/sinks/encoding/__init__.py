"""Rows as JSON or Avro, of files and of messages. No kind. Executors import from here: this file imports nothing."""
