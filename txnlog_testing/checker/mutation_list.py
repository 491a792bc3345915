"""The list of mutations, which enter themselves."""

from __future__ import annotations

from collections.abc import Callable

from txnlog_testing.checker.anomalies import AnomalyClass
from txnlog_testing.checker.history_view import Mutation

__all__ = ["MUTATIONS", "finds"]

MUTATIONS: dict[str, tuple[Mutation, frozenset[AnomalyClass]]] = {}
"""Mutations by name: the function, and the classes of which one must be found."""


def finds(*classes: AnomalyClass) -> Callable[[Mutation], Mutation]:
    """Enter a mutation, of which one of these classes must be found."""

    def register(mutation: Mutation) -> Mutation:
        MUTATIONS[mutation.__name__.strip("_").replace("_", "-")] = (mutation, frozenset(classes))
        return mutation

    return register
