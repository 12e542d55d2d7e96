"""The verbs of a person beside the daily run: audit, decisions, adopt, repair, replay, look-ups."""
