"""Calls a function of the pipeline's own code on DataFrames of Spark."""
