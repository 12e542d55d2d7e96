"""A source that reads topics from a folder of JSON lines files."""
