"""Removes the rows for which a condition is not true."""
