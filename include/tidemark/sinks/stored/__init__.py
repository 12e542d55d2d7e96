"""What sinks keep as files in a store, for the process that publishes. No kind."""
