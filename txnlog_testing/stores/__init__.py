"""Servers, proxies and stores for tests: S3 servers as real processes, faults on the wire, latency, signals."""
