"""Decodes several topics in several formats: a decoder for each entry of ``decode``. This folder is no kind of
decoder."""
