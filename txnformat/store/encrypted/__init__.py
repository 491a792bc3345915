"""Encrypted logs: a store in front of another that encrypts every object, so that no caller is forgotten.

* ``store``: the store. Start reading here.
* ``envelope``: the bytes of an encrypted object, pure.
* ``ring``: the data keys of a log, as they are stored: wrapped by a master key.
* ``documents``: ``format.json`` of an encrypted log, and the objects of the key ring.
* ``key_client``: the interface that wraps and unwraps data keys; ``key_file``: the one that is built in;
  ``key_clients`` makes one from the storage option.

See the specification, section "Encrypted logs".

May import: ``base``, ``wrapped``, ``uploads`` and the other modules of ``store``, and the modules beside the
packages; cryptography, which is an extra.
"""
