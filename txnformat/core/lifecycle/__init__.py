"""What a log forgets: ids, applications and groups that nothing has used for long. Pure."""
