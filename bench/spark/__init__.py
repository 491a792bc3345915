"""Benchmarks of the Spark source and sink, and what they compare with."""
