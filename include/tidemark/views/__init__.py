"""Puts together, from several dataclasses or from rows, what people and programs look at.

All else that the Python functions return and ``--json`` prints are the dataclasses of the code themselves.
"""
