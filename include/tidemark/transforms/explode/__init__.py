"""Makes a row of each element of an array."""
