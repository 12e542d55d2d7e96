"""What is added up, by which key: totals of any kind. No kind: the sinks with ``aggregate`` use it."""
