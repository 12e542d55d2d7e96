"""Operations that you start beside the daily run: audit, decisions, adopt, repair, replay, look-ups."""
