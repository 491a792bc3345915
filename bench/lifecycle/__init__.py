"""Benchmarks of what a log forgets or writes anew."""
