"""Object stores: the interface, the adapters, and their shared parts.

* ``base``: the interface: conditional create, ranged reads, listings, streamed uploads. Start reading here.
* ``open``: from a path or URL to the store that serves it; the only function that other rooms need for that
  is :func:`open_store`.
* ``local`` with ``posix``, ``directories`` and ``beneath``: a directory of a local file system, durable
  before an answer, and never left by a link.
* ``s3``: a bucket; ``cloud``: Azure and Google; ``remote``: what these share, ``options``: what their storage
  options share; ``memory``: a dictionary, for tests and simulations.
* ``encrypted``: a store in front of any other, which encrypts what it is given.
* ``wrapped`` is the base of stores in front of others, ``patient`` repeats their reads.
* ``probe`` tries whether a store keeps its promise of one winner; ``requests`` and ``object_sizes`` classify
  keys; ``uploads`` is shared by all streamed uploads.
* ``unfinished`` and ``secrets``: uploads that never ended, masked texts.

A store knows keys and bytes, and nothing of what they mean.

May import: the modules beside the packages.
"""

from __future__ import annotations

from txnformat.store.open import open_store

__all__ = ["open_store"]
