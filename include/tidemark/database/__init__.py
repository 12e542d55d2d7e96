"""The manifest database: constraints in ``schema.sql`` enforce the promises, ``queries.sql`` has every statement."""
