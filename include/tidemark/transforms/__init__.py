"""The logic between decoder and event time: one folder per kind, and the registry. Executors import from here."""
