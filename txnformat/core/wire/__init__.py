"""Bytes of documents, whatever they say: canonical JSON, its declarations, checksums, bundles of entries. Pure; knows no operation."""
