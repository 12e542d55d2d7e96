"""``tidemark doctor``: checks everything that a pipeline needs and says what to do about each problem."""
