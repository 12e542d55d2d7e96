"""The setting ``aggregate``: what is added up, by which key. No kind: the sinks with totals use it."""
