"""Keeps one of the rows with the same key."""
