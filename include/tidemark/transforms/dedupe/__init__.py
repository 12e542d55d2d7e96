"""Of rows with the same key, keeps one."""
