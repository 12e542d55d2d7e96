"""The page of Tidemark in Airflow, for the engineer on call, and the JSON behind it."""
