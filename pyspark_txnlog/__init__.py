"""Registers the Spark DataSource ``txnlog`` by itself: Spark imports top-level modules named ``pyspark_*``."""
