"""``make bench``: how fast, beside what a user would write otherwise. Nothing here is shipped or timed in a test."""
