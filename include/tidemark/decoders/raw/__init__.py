"""``raw``: records are stored undecoded."""
