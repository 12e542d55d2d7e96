"""One pipeline file as a whole: its model, and reading it with messages that name file, line and key."""
