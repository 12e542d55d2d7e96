"""The formats of files with rows. Not a kind. Executors import from here: this file imports nothing."""
