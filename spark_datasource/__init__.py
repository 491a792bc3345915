"""The Spark Python DataSource ``txnlog``."""
