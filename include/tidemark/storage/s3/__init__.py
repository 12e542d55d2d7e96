"""Objects in a prefix of an S3 bucket: ``s3://``."""
