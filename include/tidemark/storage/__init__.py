"""Storage of objects: a folder of this machine, or a prefix of an S3 bucket."""
