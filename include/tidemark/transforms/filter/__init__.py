"""Takes the rows away for which a condition is not true."""
