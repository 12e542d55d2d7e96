"""Where records come from: one folder per kind, and the registry."""
