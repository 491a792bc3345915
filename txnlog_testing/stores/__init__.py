"""Servers, proxies and stores for tests: S3, Azure and Google as real processes, faults on the wire, stores
in front of others.

* ``conformance``: the requirements for every object store, as tests that any adapter runs. Start reading
  here.
* ``s3_server``: SeaweedFS or moto (``moto_program``) as a real process, which ends with its parent
  (``outlived``).
* ``azurite`` is an emulator of Azure, ``gcs`` stands in for Google.
* ``fault_proxy`` with ``http_wire``: spoils requests on the wire by plan; ``faulty``: the same below our own
  interface.
* ``counting`` counts requests, ``latency`` makes them slow, ``signalling`` interrupts them; ``create_race``:
  many processes, one slot.

May import: ``txnformat.store``, and the modules of ``txnformat`` beside its rooms.
"""
