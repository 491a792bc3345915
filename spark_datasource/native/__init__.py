"""Tables whose whole files go to Spark's own Parquet reader: what ``txnlog.spark`` offers.

* ``table``: a pinned read of a topic becomes one DataFrame. Start reading here.
* ``division``: which files go natively, and which offsets are the rest. Pure.
* ``ranges``: ranges of offsets: merged, and laid over planned rows. Pure.
* ``rest``: the DataSource that reads the rest, by ranges of offsets. ``small_rests``: a small one is read by
  the driver.
* ``columns``: columns of a file as the topic has them now; the guard of floats; conditions.
* ``positions``: metadata columns of files that do not store them.
* ``parameters``: what users may pass, and what is wrong with it. Pure. ``supported``: which Spark can read
  tables.
* ``calls``: what users call. ``micro_batches``: the rows of a micro-batch, by its query's checkpoint.

May import: ``options``, ``read``, ``stream``, ``write``, ``worker``, the modules of ``spark_datasource``
beside the rooms, and ``txnformat``.
"""
