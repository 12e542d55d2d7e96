"""Envelopes: records that describe a change of a row, with its new values inside. This folder is no kind of decoder."""
