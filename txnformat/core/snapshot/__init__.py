"""A whole state as the bytes of one object, and back, deterministic in both directions. Pure.

* ``codec``: the object: columns of Arrow data and a section of JSON; the digest. Start reading here.
* ``rows``: the rows of the JSON section, each declared once; ``groups`` and ``subscriptions`` have those of
  their concerns.
* ``state``: from the rows to a state, and back, with every check that a stranger's bytes need; ``partitions``
  the same of partitions.

A field that the state keeps needs a row here (see CONTRIBUTING.md): the digests of older snapshots must hold.

May import: the states and operations of every concern, the shared modules of ``core``, and the modules below
``core``.
"""
