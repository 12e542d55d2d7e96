"""How records become columns: one folder per kind, and the registry. Executors import from here."""
