"""Amazon MSK: clients log in with keys of AWS IAM."""
