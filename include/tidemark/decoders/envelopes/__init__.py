"""Envelopes: records that tell a change of a row, with its new values inside. No kind of decoder."""
