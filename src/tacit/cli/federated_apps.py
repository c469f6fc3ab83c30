"""The old name of `tacit.cli.flower`; it goes with the next release."""

from tacit.cli.flower import client_app, server_app
from tacit.renamed import warn_renamed

__all__ = ["client_app", "server_app"]

warn_renamed(__name__, "tacit.cli.flower")
