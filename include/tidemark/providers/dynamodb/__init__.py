"""A copy of totals in a table of DynamoDB, for readers."""
