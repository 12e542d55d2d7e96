"""One folder per toy: the least that a new kind of source, transform or sink has to bring."""
