"""The setting ``aggregate``: what is added up, by which key. The sinks with totals use it. This folder is no kind of
sink."""
