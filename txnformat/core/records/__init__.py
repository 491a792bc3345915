"""Records of a partition: offsets, extents and batches, and which of them a reader sees. Pure.

``state`` is the partition: its log end, last stable offset, open and aborted transactions, extents. ``decide`` decides a write,
``invariants`` checks each step, ``scan`` plans a read, ``visibility`` applies the isolation level (Kafka's consumer-side filter),
``batch_table`` holds the batches of large appends, ``chunks`` the parts of large values.
"""
