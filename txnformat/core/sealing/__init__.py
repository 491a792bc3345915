"""Seals: offset ranges below the last stable offset that moved from the state into sidecars. Pure."""
