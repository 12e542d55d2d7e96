"""Event times, time patterns, and times that users name."""
