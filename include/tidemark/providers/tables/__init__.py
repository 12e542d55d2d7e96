"""The parts that all tables share: further columns, columns that must not be null, and one row per key, its newest
version. This folder is no kind of sink."""
