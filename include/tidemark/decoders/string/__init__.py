"""``string``: values as text."""
