"""Reference models: the protocol's rules once more, simple and slow.

* ``naive_model``: a log as plain lists and dicts, written for obviousness alone. Start reading here.
* ``chain_oracle``: compares the answers that writers got with the chain itself, read entry by entry.
* ``reference_filters``: independent formulations of the read_committed filter.

A model must not call the code that it judges: ``naive_model`` takes values and operations of the product, and
no decision, fold or plan.

May import: values of ``txnformat`` (operations, intents, types, errors); ``chain_oracle`` also the steps that
follow a log.
"""
