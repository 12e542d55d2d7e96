"""Storage of objects: a folder of this machine, or a place in a store that a provider or the core brings."""
