"""Conditions on columns: the ``where`` of reads and erasures, from its text to a mask over rows.

* ``sql``: texts in, predicates out. Start reading here.
* ``bind``: the meaning of a comparison of a column with a literal: Spark's rules.
* ``tree``: predicates as plain data; it evaluates them on record batches, and says what statistics rule out
  unread.
* ``private``: conditions with personal data, whose errors show no literal.

May import: the modules beside the packages.
"""
