"""Encodes rows as JSON or Avro, for files and messages. Not a kind. Executors import from here: this file imports
nothing."""
