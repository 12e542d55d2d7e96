"""A sink that writes one JSON file for each attempt at a manifest, into one folder."""
