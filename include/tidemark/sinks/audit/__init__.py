"""The parts of an audit that several sinks need. No kind."""
