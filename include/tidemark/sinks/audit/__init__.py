"""What several sinks look for when they are audited. No kind."""
