"""Whole rounds of maintenance in several processes at once, beside producers and a subscription, all of which
are killed."""
