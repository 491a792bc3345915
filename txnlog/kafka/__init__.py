"""Kafka in and out: topics of a Kafka cluster into a log, and topics of a log into a cluster, each record
exactly once.

Start reading in ``importing`` (:func:`import_topics`) and in ``exporting`` (:func:`export_topics`): each runs
rounds of one transaction.

* Pure: ``places`` (positions of the source, and where an import begins), ``routing`` (topics and partitions
  of both sides), ``rows`` and ``messages`` (records of Kafka as rows, and rows as records), ``decoding``
  (bytes as values), ``pace`` (rates), ``positions`` (the positions that an export keeps in Kafka).
* With a broker or a registry: ``source`` (a consumer), ``sending`` (rows of a round of an import, on a
  producer of the log), ``sink`` (a transactional producer), ``schemas`` (schemas by id and from files),
  ``failures`` (their errors as those of txnlog).

The extra ``kafka`` has what it needs.

May import: ``writers`` and ``txnformat``, ``txnlog.rounds``, and ``txnlog.schemas`` for schemas of Avro and
Protobuf.
"""

from txnlog.kafka.exporting import ExportReport, export_topics
from txnlog.kafka.importing import ImportReport, import_topics

__all__ = ["ExportReport", "ImportReport", "export_topics", "import_topics"]
