"""``tidemark doctor``: looks at everything a pipeline needs, one check at a time, and says what to do next."""
