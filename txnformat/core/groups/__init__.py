"""Consumer groups: members, generations, positions, and positions that are pending in transactions. Pure."""
