"""Several topics with several formats: a decoder for each entry of ``decode``, and the columns of all. No kind."""
