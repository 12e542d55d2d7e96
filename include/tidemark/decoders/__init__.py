"""Decoders turn records into columns. The registry says which folders are kinds. Executors import from here."""
