"""The files of sinks in a store, for the process that publishes. Not a kind."""
