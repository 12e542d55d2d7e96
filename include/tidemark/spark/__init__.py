"""The Spark job: a session, an order, a receipt."""
