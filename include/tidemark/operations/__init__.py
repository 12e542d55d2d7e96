"""What a person asks for beside the daily run: audit, decisions, adopt, repair, replay, look-ups."""
