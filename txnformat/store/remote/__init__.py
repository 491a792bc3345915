"""The shared parts of all stores behind a network, whichever client speaks to them.

* ``store``: the base of the adapters. Start reading here.
* ``answers``: the meanings of answers, and one failed request.
* ``store_time``: a store's clock, from the Date headers of its answers.

May import: the modules of ``store``, and the modules beside the packages; no client.
"""
