"""Conditions on columns: ``sql`` parses them, ``bind`` gives each comparison Spark's meaning, ``tree`` evaluates them on record batches.

May import: the modules beside the packages.
"""
