"""Publishing: topics as tables of other engines.

``call`` is a publication as a whole: the files that it needs, the entry that it can show, the manifest.
``formats`` says what is different between formats, ``delta`` and ``iceberg`` are the two; the latter is
imported only where it is asked for: it needs pyiceberg. ``reports`` says what came of it. ``holding`` says
what tables hold back from a vacuum.

May import: ``views``, ``reading``, ``client``, ``protocol``, ``core`` and below; of ``admin`` the compaction
and the list of damaged topics.
"""
