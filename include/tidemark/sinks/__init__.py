"""Where batches go: one file per kind. Executors import from here, so this file imports nothing."""
