"""The manifest database: constraints in ``schema.sql`` keep the promises, ``queries.sql`` has every statement."""
