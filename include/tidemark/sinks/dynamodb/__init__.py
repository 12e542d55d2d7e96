"""Totals per key in a DynamoDB table: each manifest contributes once, however often it is processed."""
