"""A key client as users write them, for tests: it keeps nothing secret."""

from __future__ import annotations

from typing import ClassVar

__all__ = ["Vault", "made"]


class Vault:
    """Notes what it is asked for, and fails if it is told to."""

    asked: ClassVar[list[str]] = []
    failure: ClassVar[Exception | None] = None

    def __init__(self, config: str) -> None:
        self._config = config

    def wrap(self, key: bytes, context: str) -> tuple[str, bytes]:
        """Return the key with its bits turned."""
        return "vault-key", bytes(one ^ 0x5A for one in key)

    def unwrap(self, master_key: str, wrapped: bytes, context: str) -> bytes:
        """Return the key."""
        if self.failure is not None:
            raise self.failure
        self.asked.append(f"{self._config} {master_key} {context}")
        return bytes(one ^ 0x5A for one in wrapped)


def made(config: str) -> Vault:
    """Return a key client; is none itself."""
    raise AssertionError(config)


made.wrap = made.unwrap = Vault.wrap  # type: ignore[attr-defined]  # as if it were one
