"""``txnlog import``, ``txnlog export`` and ``txnlog schema``: topics and schemas from other systems, and to
them.

``groups`` has the two groups of commands; a system adds its commands there. ``kafka_in`` and ``kafka_out``:
from and to Kafka, by ``txnlog.kafka``; ``kafka_options``: the options that both have. ``tables_in``: from
Delta tables and Parquet files, by ``txnlog.tables``. ``schemas``: schemas of topics as those of other
systems, by ``txnlog.schemas``.

May import: the shared modules of ``txnlog.cli``, ``txnlog.kafka``, ``txnlog.schemas``, ``txnlog.tables``, and
``txnformat``.
"""
