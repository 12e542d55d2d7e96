"""Makes a row from each element of an array."""
