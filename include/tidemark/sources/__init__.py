"""The sources of records: one folder per kind, and the registry."""
