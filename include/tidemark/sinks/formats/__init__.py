"""The formats of files with rows. No kind. Executors import from here: this file imports nothing."""
