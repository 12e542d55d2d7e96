"""A schema registry, and records that name a schema of it. No kind: several formats and a sink use it."""
