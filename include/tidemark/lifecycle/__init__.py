"""A manifest from plan to done: plan, attempt, publish, close."""
