"""What a driver is to do. Plain values: they travel to its process as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = [
    "BEGIN_FILE",
    "CLUSTER",
    "FINISH_FILE",
    "LOCAL",
    "READY_FILE",
    "RESULT_FILE",
    "STARTED_FILE",
    "STOP_FILE",
]
__all__ += ["Job"]

LOCAL = "local[2,1000]"
"""Tasks in the driver's JVM. The second number: how often a task may fail, which without it is once."""
CLUSTER = "local-cluster[2,1,512]"
"""Two executors, JVMs of their own, one slot each."""

FAILURE_FILES = "failure-{}.json"
"""What the query failed with the first time that it was started again after that, the second time, …"""
BEGIN_FILE, READY_FILE, STARTED_FILE = "begin.json", "ready.json", "started.json"
FINISH_FILE, STOP_FILE, RESULT_FILE = "finish.json", "stop.json", "result.json"
"""In the control folder. The driver says: the session is there; the query is; how it ended. The test says: begin the query
(where the job waits for that); end when all input is processed; stop the query at once."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A query from a folder of JSON files into a topic."""

    log: str
    """Path or URL."""
    input: str
    """The folder. A file is there at once and whole: see :func:`tests.chaos.inputs.feed`. Empty where
    ``flow`` is given."""
    checkpoint: str
    control: str
    master: str = LOCAL
    available_now: bool = False
    """Process what there is, and end. Otherwise: go on until FINISH_FILE or STOP_FILE is there."""
    trigger: str = "20 milliseconds"
    """How often, when not ``available_now``."""
    files_per_trigger: int = 1
    for_each: str | None = None
    """``module:function`` that returns, for a job, what is called for each micro-batch, instead of writing
    it."""
    for_each_batch: bool = False
    """Write each micro-batch with the batch writer, its number as the version, and not with the stream
    writer."""
    shuffle: int = 0
    """Into how many partitions rows are shuffled by their key before the sink; 0: not at all."""
    output_mode: str = "append"
    options: Mapping[str, str] = field(default_factory=dict)
    """Of the sink."""
    read_options: Mapping[str, str] = field(default_factory=dict)
    """Of the source."""
    flow: str | None = None
    """``module:function`` that makes the rows to write, instead of those of the files: see
    :func:`tests.pipeline.flow.flow`."""
    notes: str = ""
    """The folder in which tasks of a flow note what they handed on."""
    conf: Mapping[str, str] = field(default_factory=dict)
    """Of Spark, besides those that make it quick and quiet."""
    restarts: int = 0
    """How often a query that failed is started again in the same JVM, unless FINISH_FILE is there."""
    waits: bool = False
    """Start Spark, and begin the query when BEGIN_FILE is there. What it says goes before this job's own
    values."""
    broken: str | None = None
    """A defect of tests.chaos.broken, to see that it is found."""
