"""Servers, proxies and stores for tests: S3 servers as real processes, faults on the wire; stores in front of others that count, fail, wait or signal."""
