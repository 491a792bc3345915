"""A DAG of Apache Airflow: waits for orders, writes totals exactly once, and keeps the log small.

The root comes from the variable ``TXNLOG_ROOT``.
"""

from __future__ import annotations

import datetime
import os

import pyarrow as pa
from airflow.sdk import DAG
from txnlog_airflow import TxnLogMaintenanceOperator, TxnLogProcessOperator, TxnLogSensor

ROOT = os.environ.get("TXNLOG_ROOT", "/tmp/txnlog-example")


def totals(orders: pa.Table) -> list[dict[str, int]]:
    """Return one record: how many orders, and their amount."""
    return [{"orders": orders.num_rows, "amount": sum(orders["amount"].to_pylist())}]


with DAG("txnlog_example", start_date=datetime.datetime(2026, 1, 1), schedule=None, catchup=False) as dag:
    place = {"root": ROOT, "topics": ["orders"], "group": "totals"}
    new = TxnLogSensor(task_id="new_orders", **place, poke_interval=30, mode="reschedule")
    process = TxnLogProcessOperator(
        task_id="totals", **place, target="totals", transform=totals, retries=3, max_records=4
    )
    maintain = TxnLogMaintenanceOperator(task_id="maintain", root=ROOT, task="seal")
    new >> process >> maintain
