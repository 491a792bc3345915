"""Reference models: the protocol's rules once more, simple and slow."""
