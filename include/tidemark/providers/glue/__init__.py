"""The schema registry of AWS Glue."""
