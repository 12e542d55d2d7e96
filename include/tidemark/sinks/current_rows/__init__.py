"""Keeps one row of each key, its newest version, whatever the table is. No kind."""
