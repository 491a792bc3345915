"""Idempotent producers: sequence numbers and ids, and what a sequence proves about an unanswered commit. Pure."""
