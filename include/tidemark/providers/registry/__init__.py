"""A schema registry, and records that name one of its schemas. Several formats and a sink use this folder; it is no
kind of decoder."""
