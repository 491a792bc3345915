"""Topics: their schemas and settings, how these may change, and how a topic is created. Pure.

* ``schema``: the columns of a topic, its key and its time. Start reading here.
* ``settings``: the settings of topics, each declared once; ``cleanup`` and ``filters`` give two of them their
  meaning.
* ``creation``: a topic that is to be created, compared with one that exists; ``evolution``: how a topic may
  change; ``renaming``: which columns may get other names, or go.
* ``decide``: whether the log takes a new topic, or a change; ``fold``: the state has it.

May import: the shared modules of ``core``, what :mod:`txnformat.core.lifecycle` says of features, and the
modules below ``core``.
"""
