"""Chooses, renames and computes columns."""
