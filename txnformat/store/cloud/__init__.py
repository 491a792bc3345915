"""Object stores behind obstore, the Python interface of Rust's object_store: Azure Blob Storage and Google
Cloud Storage.

* ``store``: the adapter. Start reading here.
* ``azure``, ``gcs``: what is particular to one cloud: its URLs, its options, its credentials.
* ``client``: obstore's clients of one process; one of them sends each request exactly once.
* ``requests``: one request by obstore, and what its answer must have.
* ``errors``: the meaning of an answer, and what it proves about the request.
* ``upload``: streamed uploads; ``store_time``: the store's clock, which obstore does not show.
* ``options``: the storage options that all clouds have.

May import: ``base``, ``uploads`` and the other modules of ``store``, and the modules beside the packages;
obstore only inside functions.
"""
