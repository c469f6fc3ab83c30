"""The old name of `tacit.cli.flower`; it goes with the next release."""

import warnings

from tacit.cli.flower import client_app, server_app

__all__ = ["client_app", "server_app"]

warnings.warn(
    "tacit.cli.federated_apps is called tacit.cli.flower now; the old name goes with the next "
    "release",
    DeprecationWarning,
    stacklevel=2,
)
