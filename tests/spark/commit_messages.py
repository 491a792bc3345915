"""What the driver believes of the messages of tasks."""

from __future__ import annotations

from collections.abc import Sequence

from spark_datasource.write.messages import TaskUpload, check_uploads, of_tasks
from spark_datasource.write.plan import WritePlan
from spark_datasource.write.sink import targets_of
from writers.upload import Uploaded

__all__ = ["checked"]


def checked(messages: Sequence[object], plan: WritePlan) -> list[tuple[str, list[Uploaded]]]:
    """Return what the tasks uploaded of each topic, or raise."""
    tasks = of_tasks(messages, TaskUpload)
    destinations = {name: target.destination for name, target in targets_of(tasks, plan).items()}
    return check_uploads(tasks, plan.born, destinations, compared=plan.compared)
