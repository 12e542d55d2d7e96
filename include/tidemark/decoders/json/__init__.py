"""JSON records, checked strictly against a schema."""
