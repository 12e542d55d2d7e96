"""Real services from packages, on free ports of this machine: what starts, stops and asks them."""
