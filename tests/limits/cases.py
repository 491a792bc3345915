"""All cases, by the modules that hold them."""

from __future__ import annotations

from tests.limits import arrow_cases, document_cases, fold_cases, hundred_cases, parquet_cases
from tests.limits.case import Case

__all__ = ["CASES"]

CASES: tuple[Case, ...] = (
    *parquet_cases.CASES,
    *arrow_cases.CASES,
    *document_cases.CASES,
    *fold_cases.CASES,
    *hundred_cases.CASES,
)
