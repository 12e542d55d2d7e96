"""A sink that writes JSON lines into one folder."""
