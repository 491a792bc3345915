"""Publishing: topics as tables of other engines.

``call`` is a publication as a whole: the files that it needs, the entry that it can show, the versions of the tables, the manifest. ``holding`` says what tables hold back from a vacuum.

May import: ``views``, ``reading``, ``client``, ``protocol``, ``core`` and below; of ``admin`` the compaction and the list of damaged topics.
"""
