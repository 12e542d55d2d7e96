"""Starts, stops and asks real services, which are installed as packages, on free ports of this machine."""
