"""The requests of a store as a proxy sees them, some of them spoilt."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from txnformat.store.base import ObjectStore
from txnlog_testing.stores.fault_proxy import FaultProxy, ProxyFault, Request

__all__ = ["Wire"]

Store = TypeVar("Store", bound=ObjectStore)


@dataclass
class Wire(Generic[Store]):
    """The requests through the proxy, and those that are spoilt."""

    proxy: FaultProxy
    store: Store
    sent: Counter[str] = field(default_factory=Counter)
    """Requests by method."""
    faults: dict[tuple[str, int], ProxyFault] = field(default_factory=dict)
    """Faults by method and number of the request among those of its method, from 1."""

    def plan(self, request: Request, nth: int) -> ProxyFault | None:
        """Count a request, and return its fault."""
        self.sent[request.method] += 1
        return self.faults.get((request.method, self.sent[request.method]))

    def begin(self) -> None:
        """Count and spoil from now on."""
        self.sent.clear()
        self.proxy.plan = self.plan
