"""What `make run` and `make up` show."""
