"""Object stores that speak S3: AWS, and every other with atomic ``If-None-Match: *``.

* ``store``: the adapter. Start reading here.
* ``client`` and ``session``: the connection of one process; they send each request exactly once, because a
  conditional PUT that is repeated by a library hides its own success.
* ``requests``: how often a request is sent, and what its answer must have.
* ``errors``: the meaning of an answer, and what it proves about the request; ``patience``: how long a call
  goes on.
* ``upload``: streamed uploads.
* ``options``: the storage options that users may set.

May import: ``base``, ``uploads`` and the other modules of ``store``, and the modules beside the packages; the
S3 libraries only inside functions.
"""
