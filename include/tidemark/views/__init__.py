"""The values that the Python functions return and ``--json`` prints: frozen and plain, a field for each key.

Offsets are half-open, times know their zone, ids are numbers. A view is a copy: it does not change with the database.
"""
