"""One pipeline file as a whole: its model, and a reader whose messages name file, line and key."""
