"""Seeded histories of many clients in virtual time, with faults, and the oracle that judges them."""
