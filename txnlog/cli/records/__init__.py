"""Records and columns as text and files: what ``consume`` writes and ``produce`` reads."""
