"""The parts that all formats of lake tables share: tables whose commits carry the evidence of a manifest. This folder
is no kind of sink."""
