"""The files of sinks in a store, for the process that publishes. No kind."""
