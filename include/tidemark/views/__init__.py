"""Builds views for users and programs from several dataclasses, or from rows of the database.

All other values that the Python functions return and ``--json`` prints are dataclasses of the code itself.
"""
