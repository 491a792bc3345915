"""The instrumentor that ``opentelemetry-instrument`` finds by the entry point of setup.cfg, and calls:
programs are traced without a line of code.

It imports nothing of txnlog but what spans need: this runs at the beginning of every process of Python, also
of those that never use a log.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor

from txnlog.otel import instrument, uninstrument

__all__ = ["TxnLogInstrumentor"]


class TxnLogInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """:func:`txnlog.otel.instrument` in the form of OpenTelemetry's instrumentations.

    ``TxnLogInstrumentor().instrument(tracer_provider=…, meter_provider=…)``; without them the global
    providers.
    """

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return what has to be installed, beside this package itself."""
        return ("opentelemetry-api >= 1.31",)

    def _instrument(self, **kwargs: Any) -> None:
        instrument(kwargs.get("tracer_provider"), kwargs.get("meter_provider"))

    def _uninstrument(self, **kwargs: Any) -> None:
        uninstrument()
