"""The nouns of the glossary as frozen classes: offsets, manifests, orders, receipts, digests, verdicts, problems."""
