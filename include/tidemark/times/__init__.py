"""Times of events and of people: zones, patterns and hours."""
