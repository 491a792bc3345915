"""The examples for Airflow and dbt, run by Airflow and dbt themselves: ``python -m tests.orchestration``
(``make orchestration``).

Their packages take minutes to install and hundreds of megabytes, and want versions that those of the tests
are not; so each has an environment of its own, and ``make test`` runs neither.
"""
