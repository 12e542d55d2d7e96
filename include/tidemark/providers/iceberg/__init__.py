"""Iceberg tables: each manifest is one snapshot, and a replay replaces the rows of its manifest."""
