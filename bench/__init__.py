"""``make bench`` measures the speed beside plain Spark jobs. It is not shipped, and no test measures time."""
