"""The topic ``orders`` as a table: every committed record, of one moment of the log.

It runs where dbt runs, which needs txnlog there.
"""

import os


def model(dbt, session):  # noqa: ANN001, ANN201  # dbt reads this file, and calls it
    """Return the records of the topic, with their places."""
    from txnlog import TxnLog

    dbt.config(materialized="table")
    with TxnLog.open(os.environ["TXNLOG_ROOT"]) as log:
        columns = ["_partition", "_offset", "customer", "amount"]
        records = log.snapshot().read("orders", columns=columns).read_all()
    return records  # noqa: RET504  # dbt wants a name here
