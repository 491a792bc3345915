"""A key service for tests: master keys by name, outages, and wrong answers. It keeps nothing secret."""

from __future__ import annotations

from typing import Any, ClassVar

from txnformat.store.encrypted.key_client import KeyRefusedError

__all__ = ["Service"]


class Service:
    """The newest name wraps; a test changes the attributes of the class."""

    names: ClassVar[list[str]] = ["one"]
    is_down: ClassVar[bool] = False
    asked: ClassVar[int] = 0
    answer: ClassVar[Any] = None
    """The answer to ``wrap``, in place of the right one."""

    def __init__(self, config: str) -> None:
        pass

    def wrap(self, key: bytes, context: str) -> Any:
        """Return the key with the name before it."""
        return self.answer or (self.names[-1], self.names[-1].encode() + key)

    def unwrap(self, master_key: str, wrapped: bytes, context: str) -> bytes:
        """Return the key."""
        type(self).asked += 1
        if self.is_down:
            raise RuntimeError("down")
        if master_key not in self.names:
            raise KeyRefusedError("no such key")
        return wrapped.removeprefix(master_key.encode())
