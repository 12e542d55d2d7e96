"""Totals per key in a PostgreSQL table: each manifest contributes once, however often it is processed."""
