"""The shapes of JSON values, and the Arrow columns that they become. This folder is no kind of decoder."""
