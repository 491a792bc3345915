"""The names that users import."""
