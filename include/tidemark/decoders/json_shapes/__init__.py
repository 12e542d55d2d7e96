"""The shapes of JSON values, and the Arrow columns that they become. No kind."""
