"""Subscriptions: acknowledgements of single records, also inside transactions (Pulsar's PIP-31). Pure."""
