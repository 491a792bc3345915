"""Topics: their schemas, how these may change, and how a topic is created. Pure."""
