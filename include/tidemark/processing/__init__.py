"""The single pass of a Spark task over its records, in plain Arrow."""
