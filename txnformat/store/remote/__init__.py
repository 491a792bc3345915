"""The shared parts of all stores behind a network, whichever client speaks to them.

* ``answers``: the meanings of answers, and one failed request.

May import: the modules of ``store``, and the modules beside the packages; no client.
"""
