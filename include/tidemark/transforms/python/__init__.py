"""Calls a function of the pipeline's own code on Arrow batches."""
