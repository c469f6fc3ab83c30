"""The pieces of a layer in the clear, of every family."""

from torch import Tensor
from torch.nn import functional

from tacit.llm.model.architecture import LanguageModel


def feed(model: LanguageModel, name: str, x: Tensor) -> Tensor:
    """Apply the two or three matrices behind the attention."""
    up = linear(model, f"{name}.up", x)
    match model.architecture.activation:
        case "swiglu":
            up = functional.silu(linear(model, f"{name}.gate", x)) * up
        case "geglu_tanh":
            up = functional.gelu(linear(model, f"{name}.gate", x), approximate="tanh") * up
        case "gelu":
            up = functional.gelu(up)
        case "gelu_tanh":
            up = functional.gelu(up, approximate="tanh")
    return linear(model, f"{name}.down", up)


def norm(model: LanguageModel, name: str, x: Tensor) -> Tensor:
    """Normalise, with the weights of a layer's norm."""
    a, weight = model.architecture, model.weights[f"{name}.weight"]
    if a.norm == "rms":
        return functional.rms_norm(x, weight.shape, weight, a.norm_eps)
    return functional.layer_norm(x, (a.width,), weight, model.weights[f"{name}.bias"], a.norm_eps)


def linear(model: LanguageModel, name: str, x: Tensor) -> Tensor:
    """Apply a matrix and, if there is one, its bias."""
    return functional.linear(x, model.weights[f"{name}.weight"], model.weights.get(f"{name}.bias"))
