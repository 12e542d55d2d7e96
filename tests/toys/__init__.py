"""One folder per toy: the least that a new kind of source, envelope, transform or sink has to bring."""
