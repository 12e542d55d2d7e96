"""Stages rows in a Spark task, and measures them. Not a kind. Executors import from here: this file imports nothing."""
