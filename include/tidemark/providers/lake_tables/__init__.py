"""What tables in a lake share whose commits carry the evidence of a manifest, whatever their format. No kind."""
