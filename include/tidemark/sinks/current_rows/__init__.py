"""Keeps one row per key, its newest version, for any kind of table. Not a kind itself."""
