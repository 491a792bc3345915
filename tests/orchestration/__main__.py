"""Runs the examples of ``deploy/airflow`` and ``deploy/dbt`` against a log.

Arguments: ``airflow``, ``dbt``; both without one. With ``--if-installable`` one whose packages cannot be
installed here is named, and left out.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from txnlog import Producer, TxnLog

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"

AIRFLOW = (
    "apache-airflow-core==3.3.2",
    "apache-airflow-task-sdk==1.3.2",
    "apache-airflow-providers-standard==1.21.0",
)
DBT = ("dbt-core>=1.10,<1.11", "dbt-duckdb<1.11")
"""dbt from 1.12 on has a part that its index lacks: its installation fetches that from elsewhere."""

ORDERS = pa.schema([("customer", pa.string()), ("amount", pa.int64())])
TOTALS = pa.schema([("orders", pa.int64()), ("amount", pa.int64())])


TRY = """
import os, sys
sys.path.insert(0, sys.argv[1])
from txnlog_airflow import TxnLogProcessOperator
calls = []
def transform(table):
    calls.append(table)
    if len(calls) == int(sys.argv[3]):
        os.kill(os.getpid(), 9)
    return [{"orders": table.num_rows, "amount": sum(table["amount"].to_pylist())}]
place = {"root": sys.argv[2], "topics": ["orders"], "group": "tried", "target": "tried"}
TxnLogProcessOperator(task_id="tried", **place, transform=transform, max_records=2).execute({})
"""
"""One try of a task; it is killed at a call of its function, from 1; 0: at none."""


class NotInstallableError(Exception):
    """The packages of an example cannot be installed here."""


def environment(name: str, packages: tuple[str, ...]) -> Path:
    """Return the programs of an environment with packages and txnlog; it is made if it is not there.

    Raises NotInstallableError.
    """
    folder = ROOT / f".venv-{name}"
    stamp = folder / "txnlog-requirements.txt"
    if not stamp.exists() or stamp.read_text(encoding="utf-8").split() != list(packages):
        print(f"making {folder.name}: {' '.join(packages)}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        install = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        if subprocess.run([*install, *packages], check=False).returncode:
            raise NotInstallableError(" ".join(packages))
        subprocess.run([*install, "--editable", str(ROOT)], check=True)
        stamp.write_text("\n".join(packages), encoding="utf-8")
    return folder / "bin"


def run(command: Sequence[str | Path], folder: Path, variables: Mapping[str, str]) -> str:
    """Return what a program says; its end with another code than 0 ends this one."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "DBT"))}
    done: subprocess.CompletedProcess[str] = subprocess.run(
        list(command), cwd=folder, env={**inherited, **variables}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{command}\n{done.stdout}\n{done.stderr}\nexit code {done.returncode}")
    return done.stdout + done.stderr


def made_log(root: Path) -> TxnLog:
    """Return a log with ten orders of three customers, and an empty topic for totals."""
    log = TxnLog.create(root)
    log.create_topic("orders", ORDERS)
    log.create_topic("totals", TOTALS)
    order(log, range(10))
    return log


def order(log: TxnLog, numbers: range) -> None:
    """Append orders."""
    with Producer(log) as producer:
        producer.send("orders", [{"customer": f"c{number % 3}", "amount": number} for number in numbers])


def check_airflow(folder: Path) -> None:
    """Let Airflow run the DAG twice: every order is in one total, also when the second run finds few."""
    programs = environment("airflow", AIRFLOW)
    dags = folder / "dags"
    shutil.copytree(DEPLOY / "airflow", dags, ignore=shutil.ignore_patterns("__pycache__"))
    log = made_log(folder / "log")
    variables = {
        "AIRFLOW_HOME": str(folder / "home"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "TXNLOG_ROOT": str(folder / "log"),
    }
    airflow: list[str | Path] = [programs / "airflow"]
    run([*airflow, "db", "migrate"], folder, variables)
    run([*airflow, "dags", "reserialize"], folder, variables)
    for orders in (10, 13):
        said = run([*airflow, "dags", "test", "txnlog_example"], folder, variables)
        assert "successful" in said, said
        totals = log.read("totals").read_all()
        assert sum(totals["orders"].to_pylist()) == orders, totals
        assert sum(totals["amount"].to_pylist()) == sum(range(orders)), totals
        assert max(totals["orders"].to_pylist()) <= 4
        order(log, range(10, 13))
    check_tries(programs, dags, folder, log)
    lag = sum(part.lag_records for group in log.metrics().groups for part in group.partitions)
    assert lag == 3, lag  # those after the second run


def check_tries(programs: Path, dags: Path, folder: Path, log: TxnLog) -> None:
    """Kill tries of a task in their third and second transaction: the next ones process what they left, and
    nothing twice."""
    log.create_topic("tried", TOTALS)
    for call in (3, 2, 0):
        command = [str(one) for one in (programs / "python", "-c", TRY, dags, folder / "log", call)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode == (-9 if call else 0), ended.stderr
    totals = log.read("tried").read_all()
    assert sum(totals["orders"].to_pylist()) == 16, totals
    assert sum(totals["amount"].to_pylist()) == sum([*range(13), 10, 11, 12]), totals
    assert log.verify().ok


def check_dbt(folder: Path) -> None:
    """Let dbt build the models and run their tests: the table has what is committed."""
    programs = environment("dbt", DBT)
    project = folder / "project"
    shutil.copytree(DEPLOY / "dbt", project)
    log = made_log(folder / "log")
    with Producer(log, "open") as producer:
        producer.begin()
        producer.send("orders", [{"customer": "nobody", "amount": 1}])
        producer.flush()
        variables = {
            "TXNLOG_ROOT": str(folder / "log"),
            "TXNLOG_DBT_DATABASE": str(folder / "dbt.duckdb"),
            "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
        }
        said = run([programs / "dbt", "build", "--profiles-dir", "."], project, variables)
        assert "ERROR=0" in said, said
        assert "PASS=5" in said, said
        producer.abort()
    query = (
        "import duckdb, sys; print(duckdb.connect(sys.argv[1]).sql('select * from customers order by "
        "1').fetchall())"
    )
    found = run([programs / "python", "-c", query, folder / "dbt.duckdb"], folder, {})
    assert found.strip() == "[('c0', 4, 18), ('c1', 3, 12), ('c2', 3, 15)]", found


CHECKS: Mapping[str, Callable[[Path], None]] = {"airflow": check_airflow, "dbt": check_dbt}


def main(arguments: list[str]) -> None:
    """Run the checks."""
    parser = argparse.ArgumentParser(prog="python -m tests.orchestration", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="|".join(CHECKS))
    parser.add_argument("--if-installable", action="store_true")
    given = parser.parse_args(arguments)
    if unknown := set(given.names) - CHECKS.keys():
        parser.error(f"there is no example {', '.join(sorted(unknown))}")
    for name in given.names or CHECKS:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="txnlog-") as folder:
            try:
                CHECKS[name](Path(folder))
            except NotInstallableError as error:
                if not given.if_installable:
                    sys.exit(f"{name}: cannot be installed here: {error}")
                print(f"{name}: NOT RUN, for it cannot be installed here: {error}")
                continue
        print(f"{name}: as it should be, in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
