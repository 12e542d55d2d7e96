"""Delta tables: each manifest is one commit, and a replay replaces the rows of its manifest."""
