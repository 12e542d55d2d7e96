"""A provider in a package of its own: the sink ``toy``, which writes JSON lines into one folder."""
