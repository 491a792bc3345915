"""moto's server with the one thing that it lacks of S3: a conditional write is one step.

moto looks whether the key is free and then writes it, in a thread for each request: of two creators that meet
between the two, both are told that they won. Here such requests follow one another.
"""

from __future__ import annotations

import argparse
import io
import threading
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["OneAtATime", "SpokenToAsGoogle", "main"]

Application = Callable[[dict[str, Any], Any], Iterable[bytes]]


class OneAtATime:
    """A WSGI application that answers conditional writes one at a time, and all else as ``application``
    does.
    """

    def __init__(self, application: Application) -> None:
        self._application = application
        self._turn = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Answer one request."""
        is_write = environ["REQUEST_METHOD"] in {"PUT", "POST"}
        if not is_write or not environ.keys() & {"HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH"}:
            return self._application(environ, start_response)
        length = environ.get("CONTENT_LENGTH")
        if length:  # received before its turn: a slow sender keeps no other client waiting
            environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(int(length)))
        with self._turn:
            return list(self._application(environ, start_response))


class SpokenToAsGoogle:
    """A WSGI application of S3 under the names of Google's XML interface, which is S3's but for its condition
    and its credentials.

    ``x-goog-if-generation-match: 0`` is S3's ``If-None-Match: *``; a bearer token must be there, and may be
    any.
    """

    def __init__(self, application: Application) -> None:
        self._application = application

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Answer one request."""
        if not environ.get("HTTP_AUTHORIZATION", "").startswith("Bearer ") and environ["PATH_INFO"] != "/":
            start_response("401 Unauthorized", [("Content-Type", "application/xml")])
            return [
                (
                    b"<Error><Code>AuthenticationRequired</Code><Message>Authentication "
                    b"required.</Message></Error>"
                )
            ]
        if environ.pop("HTTP_X_GOOG_IF_GENERATION_MATCH", None) == "0":
            environ["HTTP_IF_NONE_MATCH"] = "*"
        return self._application(environ, start_response)


def main() -> None:
    """Serve on 127.0.0.1, at the port that the command line names, until killed."""
    from moto.moto_server.werkzeug_app import (
        DomainDispatcherApplication,
        MotoRequestHandler,
        create_backend_app,
    )
    from werkzeug.serving import run_simple

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("--google", action="store_true", help="under the names of Google's XML interface")
    given = parser.parse_args()
    application: Any = DomainDispatcherApplication(create_backend_app)
    application.debug = True  # as moto_server has it
    served: Application = OneAtATime(application)
    if given.google:
        served = SpokenToAsGoogle(served)
    run_simple("127.0.0.1", given.port, served, threaded=True, request_handler=MotoRequestHandler)


if __name__ == "__main__":
    main()
