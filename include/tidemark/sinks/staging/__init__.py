"""Stages rows in a Spark task, and measures them. No kind. Executors import from here: this file imports nothing."""
