"""The limit on what the lists of a record take as columns, and its key ``max_list_bytes``. No kind."""
