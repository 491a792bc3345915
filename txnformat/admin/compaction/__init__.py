"""Compaction: sealed records are written anew, in fewer and larger files, or only the latest of each key.

* ``call``: a compaction of topics as a whole: what is written together, and the entry that puts it into the
  place of the old segments. Start reading here.
* ``cleaning``: key passes: of each key the latest record stays.
* ``counts``: segments, files and bytes before and after.
* ``policy``: how a topic's settings shape both. Without IO but for times in sidecars.

May import: ``reading``, ``client``, ``protocol``, ``core`` and below; of ``admin`` the list of deleted
topics.
"""

from txnformat.admin.compaction.call import (
    CompactionWriter,
    Groups,
    compact,
    compact_parts,
    compact_topic,
    seal_and_list,
)
from txnformat.admin.compaction.counts import CompactedTopic, CompactionProgress

__all__ = [
    "CompactedTopic",
    "CompactionProgress",
    "CompactionWriter",
    "Groups",
    "compact",
    "compact_parts",
    "compact_topic",
    "seal_and_list",
]
