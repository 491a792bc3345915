"""The daemon that the Python workers of Spark's tasks are forked from, with what each of them needs imported.

Spark's own imports nothing before it forks: every worker takes a third of a second to begin, and here they
are killed by the dozen.
"""

from __future__ import annotations

import runpy

import pyspark.worker  # noqa: F401

import tests.chaos.source  # noqa: F401

if __name__ == "__main__":
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
