"""``txnlog import`` and ``txnlog export``: topics from other systems, and to them.

``groups`` has the two groups of commands; a system adds its commands there. ``kafka_in`` and ``kafka_out``: from and to Kafka, by ``txnlog.kafka``; ``kafka_options``: the options that both have. ``tables_in``: from Delta tables and Parquet files, by ``txnlog.tables``.

May import: the shared modules of ``txnlog.cli``, ``txnlog.kafka``, ``txnlog.tables``, and ``txnformat``.
"""
