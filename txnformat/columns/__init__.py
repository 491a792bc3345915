"""Types of columns, and the rules for their values.

``arrow_types`` has one Arrow type for each type that Spark carries, ``spark_json`` Spark's form of a schema.
``conform`` brings a user's data to a topic's schema, after ``row_values``, ``sound`` and ``text`` have
checked it without arithmetic. ``multiset`` hashes rows without regard to their order. ``arrow_file`` and
``arrow_messages`` read Arrow files of flat columns without Arrow's decoder. ``json_values`` has values of
columns as JSON, and back.

May import: the modules beside the packages.
"""
