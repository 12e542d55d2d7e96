"""The parts that are shared by tables in a lake whose commits carry the evidence of a manifest, whatever their format.
No kind."""
