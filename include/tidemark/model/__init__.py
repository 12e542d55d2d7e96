"""The nouns of the glossary, frozen and plain: offsets, manifests, orders, receipts, digests, verdicts, problems."""
