"""A user's own logic between decoder and event time."""
