"""`make demo`: the flights of New York 2013 in transactions, read with Spark under every isolation level."""
