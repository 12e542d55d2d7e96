"""A PostgreSQL table with one row per key."""
