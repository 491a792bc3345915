"""What a log forgets: ids, applications and groups that were idle for long. Pure."""
