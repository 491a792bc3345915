"""State that a Python worker of Spark keeps between calls, since Spark reuses its workers.

* ``logs``: open logs of the driver's side: the next call starts warm, and follows the log by one request.
  Start reading here.
* ``stores``: open stores of an executor: later tasks find connections and directories as they are.
* ``collector``: the garbage collector does not look through imported modules after every task.

A worker runs one call at a time, so nothing here has a lock. The key of each cached object includes the
storage options: a job never gets the connection of a job with other rights.

May import: ``options``, and ``txnformat``.
"""
