"""Turn records into columns: the registry says which folders are kinds. Executors import from here."""
