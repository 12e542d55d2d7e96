"""A transform that takes rows away: every n-th offset, and every row after the first of a task that has some value."""
