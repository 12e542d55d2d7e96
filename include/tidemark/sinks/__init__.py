"""Targets of rows: a folder per kind. Executors import from here, so this file imports nothing."""
