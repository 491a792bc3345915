"""Versions of applications: the exactly-once key of a batch engine. Pure."""
