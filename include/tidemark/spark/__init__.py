"""What runs in Spark: one session, one job, one receipt."""
