"""A schema registry as its REST interface shows it: schemas by id, and versions of subjects. Kafka's
registries are not on Maven Central."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

__all__ = ["RegistryServer"]


@dataclass
class RegistryServer:
    """A server at 127.0.0.1. ``texts``: what ``GET /schemas/ids/N`` answers, by id and format."""

    texts: dict[tuple[int, str], dict[str, Any]] = field(default_factory=dict)
    subjects: dict[tuple[str, int], int] = field(default_factory=dict)
    """Id of each version of a subject."""
    status: int | None = None
    """Answer everything with this status."""
    asked: list[str] = field(default_factory=list)

    def add(
        self, schema_id: int, text: str, kind: str = "AVRO", references: list[dict[str, Any]] | None = None
    ) -> None:
        """Register a schema."""
        document: dict[str, Any] = {"schema": text, "references": references or []}
        if kind != "AVRO":
            document["schemaType"] = kind
        self.texts[schema_id, "serialized" if kind == "PROTOBUF" else ""] = document

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def answer(self, target: str) -> tuple[int, dict[str, Any]]:
        self.asked.append(target)
        if self.status is not None:
            return self.status, {"error_code": self.status, "message": "no"}
        parts = urlsplit(target)
        form = parse_qs(parts.query).get("format", [""])[0]
        words = parts.path.strip("/").split("/")
        if words[:2] == ["schemas", "ids"]:
            found = self.texts.get((int(words[2]), form))
            return (
                (404, {"error_code": 40403, "message": "Schema not found"}) if found is None else (200, found)
            )
        if words[0] == "subjects":
            subject, version = words[1], int(words[3])
            schema_id = self.subjects[subject, version]
            return 200, {
                "subject": subject,
                "version": version,
                "id": schema_id,
                **self.texts[schema_id, form],
            }
        return 404, {"error_code": 404, "message": "not found"}

    def __enter__(self) -> Self:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, document = registry.answer(self.path)
                data = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
