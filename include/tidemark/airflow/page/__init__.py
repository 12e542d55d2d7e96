"""The page of Tidemark in Airflow: what the person on call looks at, and the JSON behind it."""
