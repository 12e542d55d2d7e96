"""A SELECT over the view ``batch``."""
