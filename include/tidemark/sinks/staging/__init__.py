"""How a Spark task stages rows, and measures them. No kind. Executors import from here: this file imports nothing."""
