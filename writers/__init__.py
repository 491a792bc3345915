"""Everything that writes to a log: producers and their transactions."""
