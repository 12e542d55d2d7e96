"""``make bench`` compares the speed with plain Spark jobs. It is not shipped, and no test measures time."""
