"""Serve the page on this machine until it is stopped."""

import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn

from tacit.cli.studio.app import make_app
from tacit.cli.studio.guard import Keys
from tacit.errors import InputError

_HOST = "127.0.0.1"


def serve(folder: Path, port: int, on_ready: Callable[[str], None]) -> None:
    """Serve a folder of results on loopback.

    Args:
        folder: where results lie, and runs that are started keep their journals.
        port: to listen on; 0 for any that is free.
        on_ready: gets the address to open, with the token.

    Raises:
        InputError: the port is taken.
    """
    try:
        listener = socket.create_server((_HOST, port))
    except OSError as error:
        raise InputError(f"cannot listen on {_HOST}:{port}: {error.strerror}") from error
    with listener:
        keys, chosen = Keys(), listener.getsockname()[1]
        # Requests are not logged: the first has the token in its address.
        config = uvicorn.Config(
            make_app(folder, keys, chosen),
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=1,
        )
        on_ready(f"http://{_HOST}:{chosen}{keys.path}?token={keys.token}")
        uvicorn.Server(config).run(sockets=[listener])
