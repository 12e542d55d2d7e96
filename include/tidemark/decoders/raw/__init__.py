"""Records as they are: nothing is decoded."""
