"""The manifest database: ``schema.sql`` keeps the promises, ``queries.sql`` holds every statement."""
