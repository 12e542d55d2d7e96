"""Kinds that not everybody needs, a folder for each provider. ``kinds.py`` finds them; the core imports none."""
