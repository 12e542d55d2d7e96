"""Targets of rows, one folder per kind. Executors import from here, so this file imports nothing."""
