"""Where arrays lie and are computed on: a device of torch that is there."""

import torch

from tacit.errors import ConfigError


def check_device(name: str, what: str = "device") -> None:
    """Refuse a device that is not here, before anything is read or sent.

    Args:
        name: as torch calls it.
        what: the option or key that it was given by, for the error.

    Raises:
        ConfigError: it is no device for whole numbers and floats, or this host does not have it.
    """
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise ConfigError(f"{what}: wanted cpu, cuda or cuda:N, got {name!r}")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"{what}: {name!r} cannot be used on this host, where torch finds "
            f"{torch.cuda.device_count()} CUDA devices; leave it out to compute on the CPU"
        )
