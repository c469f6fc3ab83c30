"""Every layer and function that can be imported, in every form torch has of it, against torch."""

import re
import warnings
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tacit.errors import InputError
from tacit.nn import TorchOps, import_module
from tacit.nn.calls import CALLS
from tacit.nn.table import LAYERS
from tacit.nn.tracing import call_name

ROWS, SERIES, IMAGES = (3, 4), (2, 4, 9), (2, 4, 6, 8)
TOKENS = (2, 3, 8)


class Form(nn.Module):
    """A function of an input and of weights of any shape."""

    def __init__(self, function, *shapes):
        super().__init__()
        self.function = function
        self.weights = nn.ParameterList(torch.rand(shape) + 0.25 for shape in shapes)

    def forward(self, x):
        return self.function(x, *(self.weights[at] for at in range(len(self.weights))))


class First(nn.Module):
    """A layer of which the first result counts."""

    def __init__(self, layer, *, times=1, **named):
        super().__init__()
        self.layer, self.times, self.named = layer, times, named

    def forward(self, x):
        return self.layer(*[x] * self.times, **self.named)[0]


class Last(nn.Module):
    """A recurrent layer that is given zeros to start with, and of which the last state counts."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        start = torch.zeros(2, x.size(0), 5, dtype=x.dtype).to(x.device)
        is_lstm = isinstance(self.layer, nn.LSTM)
        _, last = self.layer(x, (start, start) if is_lstm else start)
        return torch.cat((last[1] if is_lstm else last, last[0:1] if not is_lstm else last[0]))


def f(function, *shapes):
    return lambda: Form(function, *shapes)


# shape of the input → modules with default and with explicit options, then the other forms
FORMS = {
    ROWS: {
        "Linear": [lambda: nn.Linear(4, 3), lambda: nn.Linear(4, 3, bias=False)],
        "Quantizable": [lambda: nn.modules.linear.NonDynamicallyQuantizableLinear(4, 3)],
        "linear": [f(F.linear, (5, 4)), f(lambda x, w, b: F.linear(x, w, bias=b), (5, 4), (5,))],
        "BatchNorm1d": [lambda: nn.BatchNorm1d(4), lambda: nn.BatchNorm1d(4, 0.1, affine=False)],
        "batch_norm": [
            f(F.batch_norm, (4,), (4,)),
            f(lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b, eps=0.1), *[(4,)] * 4),
        ],
        "LayerNorm": [lambda: nn.LayerNorm(4), lambda: nn.LayerNorm(4, 0.1, False)],
        "layer_norm": [
            f(lambda x: F.layer_norm(x, (4,))),
            f(lambda x, w, b: F.layer_norm(x, [4], w, b, 0.1), (4,), (4,)),
        ],
        "RMSNorm": [lambda: nn.RMSNorm(4), lambda: nn.RMSNorm(4, 0.1, False)],
        "rms_norm": [
            f(lambda x: F.rms_norm(x, (4,))),
            f(lambda x, w: F.rms_norm(x, (4,), weight=w, eps=0.1), (4,)),
        ],
        "Dropout": [nn.Dropout, lambda: nn.Dropout(0.2, inplace=True)],
        "dropout": [
            f(lambda x: F.dropout(x, training=False)),
            f(lambda x: F.dropout(x, 0.2, training=False, inplace=True)),
        ],
        "Identity": [nn.Identity],
        "ReLU": [nn.ReLU, lambda: nn.ReLU(inplace=True)],
        "relu": [f(F.relu), f(torch.relu), f(lambda x: x.relu()), f(lambda x: (x + 0).relu_())],
        "ReLU6": [nn.ReLU6, lambda: nn.ReLU6(inplace=True)],
        "relu6": [f(F.relu6)],
        "Hardtanh": [nn.Hardtanh, lambda: nn.Hardtanh(-0.25, 0.5)],
        "hardtanh": [f(F.hardtanh), f(lambda x: F.hardtanh(x, -0.25, max_val=0.5))],
        "LeakyReLU": [nn.LeakyReLU, lambda: nn.LeakyReLU(0.3)],
        "leaky_relu": [f(F.leaky_relu), f(lambda x: F.leaky_relu(x, 0.3, inplace=False))],
        "Hardswish": [nn.Hardswish],
        "hardswish": [f(F.hardswish)],
        "Hardsigmoid": [nn.Hardsigmoid],
        "hardsigmoid": [f(F.hardsigmoid)],
        "GELU": [nn.GELU, lambda: nn.GELU("tanh")],
        "gelu": [f(F.gelu), f(lambda x: F.gelu(x, approximate="tanh"))],
        "SiLU": [nn.SiLU],
        "silu": [f(F.silu), f(lambda x: F.silu(x, inplace=False))],
        "Sigmoid": [nn.Sigmoid],
        "sigmoid": [f(F.sigmoid), f(torch.sigmoid), f(lambda x: x.sigmoid())],
        "Tanh": [nn.Tanh],
        "tanh": [f(F.tanh), f(torch.tanh), f(lambda x: x.tanh())],
        "Softplus": [nn.Softplus, lambda: nn.Softplus(1, 20)],
        "softplus": [f(F.softplus), f(lambda x: F.softplus(x, beta=1, threshold=20))],
        "Softmax": [lambda: nn.Softmax(dim=0), nn.Softmax],
        "softmax": [
            f(F.softmax),
            f(lambda x: F.softmax(x, dim=-1)),
            f(lambda x: torch.softmax(x, 0)),
            f(lambda x: x.softmax(dim=1)),
        ],
        "LogSoftmax": [lambda: nn.LogSoftmax(dim=0), nn.LogSoftmax],
        "log_softmax": [
            f(lambda x: F.log_softmax(x, dim=-1)),
            f(lambda x: torch.log_softmax(x, 0)),
            f(lambda x: x.log_softmax(dim=1)),
        ],
        "Unflatten": [lambda: nn.Unflatten(1, (2, 2)), lambda: nn.Unflatten(-1, (-1, 1))],
        "unflatten": [
            f(lambda x: torch.unflatten(x, 1, (2, -1))),
            f(lambda x: x.unflatten(1, [4])),
        ],
        "add": [
            f(lambda x, w: x + w, ROWS),
            f(lambda x, w: torch.add(x, w, alpha=2), ROWS),
            f(lambda x: x.add(other=1.5)),
            f(lambda x: (x * 1).add_(2)),
            f(lambda x, w: (x * 1).__iadd__(w), ROWS),
            f(lambda x: x + torch.tensor([1.0, 2.0, 3.0, 4.0])),
        ],
        "sub": [
            f(lambda x, w: x - w, ROWS),
            f(lambda x: 1 - x),
            f(lambda x, w: torch.sub(x, w, alpha=3), ROWS),
            f(lambda x: (x * 1).__isub__(1)),
        ],
        "mul": [
            f(lambda x, w: x * w, (4,)),
            f(lambda x: torch.mul(x, 3)),
            f(lambda x, w: x.mul(other=w), (4,)),
            f(lambda x: (x + 0).__imul__(2)),
        ],
        "div": [
            f(lambda x, w: x / w, (4,)),
            f(lambda x: 1 / (x * x + 1)),
            f(lambda x: torch.div(x, 2, rounding_mode=None)),
            f(lambda x: (x + 0).__itruediv__(2)),
        ],
        "neg": [f(lambda x: -x), f(torch.neg)],
        "pow": [f(lambda x: x**2), f(lambda x: torch.pow(x, 2))],
        "matmul": [
            f(lambda x, w: x @ w, (4, 2)),
            f(torch.matmul, (4, 2)),
            f(lambda x, w: torch.mm(x, w), (4, 2)),
        ],
        "curves": [
            f(torch.abs),
            f(lambda x: x.abs()),
            f(torch.erf),
            f(torch.square),
            f(lambda x: torch.log(x * x + 1)),
            f(lambda x: (x * x + 1).sqrt()),
            f(lambda x: (x * x + 1).rsqrt()),
            f(lambda x: torch.reciprocal(x * x + 1)),
        ],
        "clamp": [
            f(lambda x: torch.clamp(x, -0.5, 0.5)),
            f(lambda x: x.clamp(min=-1, max=0.5)),
            f(lambda x: x.clamp(min=0.25)),
            f(lambda x: x.clamp(None, -0.25)),
        ],
        "of a number": [
            f(lambda x: x.mean().sum(-1).mean(dim=0, keepdim=True).amax().flatten()),
            f(lambda x: x.sum().transpose(0, -1).reshape(-1).unsqueeze(0)),
            f(lambda x: x.sum([]).view(1, 1)),
        ],
        "same": [f(lambda x: x.clone().contiguous().float().detach().to(torch.float64))],
        "sum": [
            f(lambda x: torch.sum(x)[None]),
            f(lambda x: x.sum(1)),
            f(lambda x: x.sum(dim=(0, 1), keepdim=True)),
        ],
        "mean": [f(lambda x: torch.mean(x)[None]), f(lambda x: x.mean(dim=-1, keepdim=True))],
        "extremes": [
            f(lambda x: torch.amax(x, 1)),
            f(lambda x: x.amin(dim=0, keepdim=True)),
            f(lambda x: x.argmax(dim=1)),
        ],
        "reshape": [
            f(lambda x: x.view(2, 6)),
            f(lambda x: x.reshape((4, -1))),
            f(lambda x: torch.reshape(x, (x.size(0), 2, x.shape[1] // 2))),
        ],
        "transpose": [
            f(lambda x: x.transpose(0, 1)),
            f(lambda x: torch.transpose(x, dim0=1, dim1=0)),
            f(lambda x: x.permute(1, 0)),
            f(lambda x: torch.permute(x, (1, 0))),
        ],
        "squeeze": [
            f(lambda x: x.unsqueeze(1).squeeze()),
            f(lambda x: x[None, :, None].squeeze((0, 2, 3))),
            f(lambda x: torch.squeeze(torch.unsqueeze(x, dim=0), dim=0)),
        ],
        "cat": [
            f(lambda x: torch.cat([x, x])),
            f(lambda x: torch.cat(tensors=(x, x), dim=1)),
            f(lambda x: torch.stack([x, x])),
            f(lambda x: torch.stack((x, x), dim=-1)),
        ],
        "split": [
            f(lambda x: torch.split(x, 2)[0]),
            f(lambda x: x.split([1, 3], dim=1)[1]),
            f(lambda x: x.chunk(2)[1]),
            f(lambda x: torch.chunk(x, chunks=2, dim=1)[0]),
        ],
        "repeat": [
            f(lambda x: x.repeat_interleave(2, dim=1)),
            f(lambda x: torch.repeat_interleave(x, 3)),
            f(lambda x: x[:, None].expand(-1, 2, 4)),
            f(lambda x: x[:1].expand((5, 3, 4))),
        ],
        "index": [f(lambda x: x[..., 1:]), f(lambda x: x[0][None]), f(lambda x: x[:, None, -1])],
    },
    SERIES: {
        "AvgPool1d": [lambda: nn.AvgPool1d(2), lambda: nn.AvgPool1d(3, stride=2, padding=1)],
        "avg_pool1d": [
            f(lambda x: F.avg_pool1d(x, 2)),
            f(lambda x: F.avg_pool1d(x, kernel_size=3, stride=2, padding=1)),
            f(lambda x: F.avg_pool1d(x[0], 2)),
        ],
        "MaxPool1d": [lambda: nn.MaxPool1d(2), lambda: nn.MaxPool1d(3, stride=2, padding=1)],
        "max_pool1d": [
            f(lambda x: F.max_pool1d(x, 2)),
            f(lambda x: torch.max_pool1d(x, 2)),
            f(lambda x: F.max_pool1d(x, 3, stride=2, padding=1, dilation=1, ceil_mode=False)),
        ],
        "AdaptiveAvgPool1d": [partial(nn.AdaptiveAvgPool1d, n) for n in (1, 3, 4, 9, 11)],
        "adaptive_avg_pool1d": [f(lambda x: F.adaptive_avg_pool1d(x, output_size=4))],
        "AdaptiveMaxPool1d": [partial(nn.AdaptiveMaxPool1d, n) for n in (1, 3, 4)],
        "adaptive_max_pool1d": [f(lambda x: F.adaptive_max_pool1d(x, 5))],
        "Conv1d": [
            lambda: nn.Conv1d(4, 6, 3),
            lambda: nn.Conv1d(4, 6, 3, 2, 1, 2, groups=2, bias=False),
            lambda: nn.Conv1d(4, 6, 3, padding="same", dilation=2),
            lambda: nn.Conv1d(4, 6, 3, padding="valid"),
        ],
        "conv1d": [
            f(F.conv1d, (3, 4, 2)),
            f(
                lambda x, w, b: F.conv1d(x, w, bias=b, stride=2, padding=1, dilation=2, groups=2),
                (6, 2, 3),
                (6,),
            ),
        ],
        "ConvTranspose1d": [
            lambda: nn.ConvTranspose1d(4, 3, 3),
            lambda: nn.ConvTranspose1d(4, 6, 3, 2, 1, 1, groups=2, dilation=2),
        ],
        "conv_transpose1d": [
            f(F.conv_transpose1d, (4, 2, 3)),
            f(lambda x, w: F.conv_transpose1d(x, w, stride=3, output_padding=2), (4, 2, 3)),
        ],
        "Dropout1d": [nn.Dropout1d],
        "dropout1d": [f(lambda x: F.dropout1d(x, 0.3, training=False))],
        "GroupNorm": [lambda: nn.GroupNorm(2, 4), lambda: nn.GroupNorm(4, 4, 0.1, affine=False)],
        "Softmax of three dimensions": [nn.Softmax, f(F.softmax)],
        "GRU": [
            lambda: First(nn.GRU(9, 3)),
            lambda: First(nn.GRU(9, 3, 2, batch_first=True, bidirectional=True, bias=False)),
            lambda: Last(nn.GRU(9, 5, 2, batch_first=True)),
        ],
        "LSTM": [
            lambda: First(nn.LSTM(9, 3)),
            lambda: First(nn.LSTM(9, 3, 2, batch_first=True, bidirectional=True, bias=False)),
            lambda: First(nn.LSTM(9, 3, proj_size=2)),
            lambda: Last(nn.LSTM(9, 5, 2, batch_first=True)),
            lambda: nn.Sequential(nn.Flatten(), First(nn.LSTM(36, 3))),  # one sequence
        ],
        "bmm": [f(lambda x: torch.bmm(x, x.transpose(1, 2)))],
    },
    IMAGES: {
        "AvgPool2d": [lambda: nn.AvgPool2d(2), lambda: nn.AvgPool2d((3, 2), (2, 3), (1, 0))],
        "avg_pool2d": [
            f(lambda x: F.avg_pool2d(x, 2)),
            f(lambda x: F.avg_pool2d(x, (2, 3), stride=2, padding=1, ceil_mode=False)),
        ],
        "MaxPool2d": [lambda: nn.MaxPool2d(2), lambda: nn.MaxPool2d((3, 2), 2, (1, 0))],
        "max_pool2d": [
            f(lambda x: F.max_pool2d(x, 2)),
            f(lambda x: F.max_pool2d(x, 3, 2, padding=1)),
            f(lambda x: torch.max_pool2d(x, 2)),
            f(lambda x: F.max_pool2d(input=x, kernel_size=(2, 3), dilation=(1, 1))),
            f(lambda x: F.max_pool2d(x[0], 2)),  # one image
        ],
        "AdaptiveAvgPool2d": [
            lambda: nn.AdaptiveAvgPool2d(2),
            lambda: nn.AdaptiveAvgPool2d((4, 3)),
            lambda: nn.AdaptiveAvgPool2d((None, 5)),
        ],
        "adaptive_avg_pool2d": [f(lambda x: F.adaptive_avg_pool2d(x, (1, 1)))],
        "AdaptiveMaxPool2d": [
            lambda: nn.AdaptiveMaxPool2d(2),
            lambda: nn.AdaptiveMaxPool2d((4, None)),
        ],
        "adaptive_max_pool2d": [
            f(lambda x: F.adaptive_max_pool2d(x, 2)),
            f(lambda x: F.adaptive_max_pool2d(x, (5, 3), return_indices=False)),
        ],
        "Conv2d": [
            lambda: nn.Conv2d(4, 3, 3),
            lambda: nn.Conv2d(4, 8, (3, 2), (2, 1), (1, 0), (1, 2), groups=4),
            lambda: nn.Conv2d(4, 4, 3, padding="same", groups=2, bias=False),
        ],
        "conv2d": [
            f(F.conv2d, (3, 4, 2, 2)),
            f(lambda x, w, b: F.conv2d(x, w, b, 2, 1, 2, 4), (8, 1, 3, 3), (8,)),
            f(lambda x, w: F.conv2d(x[0], w, padding=(1, 0)), (3, 4, 2, 2)),
        ],
        "ConvTranspose2d": [
            lambda: nn.ConvTranspose2d(4, 3, 3),
            lambda: nn.ConvTranspose2d(4, 6, (3, 2), (2, 3), 1, (1, 2), groups=2, bias=False),
            lambda: nn.ConvTranspose2d(4, 2, 1, stride=2, padding=1, dilation=3),
        ],
        "conv_transpose2d": [
            f(F.conv_transpose2d, (4, 2, 3, 3)),
            f(lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, groups=2), (4, 1, 3, 3), (2,)),
        ],
        "BatchNorm2d": [lambda: nn.BatchNorm2d(4)],
        "Dropout2d": [nn.Dropout2d],
        "dropout2d": [f(lambda x: F.dropout2d(x, training=False))],
        "Flatten": [nn.Flatten, lambda: nn.Flatten(0, 2)],
        "flatten": [
            f(torch.flatten),
            f(lambda x: torch.flatten(x, start_dim=1)),
            f(lambda x: x.flatten(1, -2)),
        ],
        "group_norm": [
            f(lambda x: F.group_norm(x, 2)),
            f(lambda x, w, b: F.group_norm(x, 4, weight=w, bias=b, eps=0.1), (4,), (4,)),
        ],
    },
    TOKENS: {
        "MultiheadAttention": [
            lambda: First(nn.MultiheadAttention(8, 2), times=3),
            lambda: First(nn.MultiheadAttention(8, 4, batch_first=True), times=3, is_causal=False),
        ],
        "TransformerEncoderLayer": [
            lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
            lambda: nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", norm_first=True),
        ],
        "TransformerEncoder": [
            lambda: nn.TransformerEncoder(
                nn.TransformerEncoderLayer(8, 2, 16), 2, enable_nested_tensor=False
            )
        ],
        "sdpa": [
            f(lambda x: F.scaled_dot_product_attention(*[x[:, None]] * 3)),
            f(lambda x: F.scaled_dot_product_attention(*[x[:, None]] * 3, is_causal=True, scale=1)),
        ],
    },
    (): {
        "Embedding": [lambda: nn.Embedding(6, 3), lambda: nn.Embedding(6, 3, padding_idx=-1)],
        "embedding": [
            f(F.embedding, (6, 3)),
            f(lambda x, w: F.embedding(x, w, padding_idx=2), (6, 3)),
        ],
    },
}
CASES = [
    pytest.param(shape, make, id=f"{name} {at}")
    for shape, forms in FORMS.items()
    for name, makes in forms.items()
    for at, make in enumerate(makes)
]


def made(make, shape):
    torch.manual_seed(3)
    module = make().double().eval()
    if not shape:
        return module, torch.tensor([[0, 5], [2, 2]])
    return module, torch.rand(shape, dtype=torch.float64) * 2 - 1


@pytest.mark.parametrize(("shape", "make"), CASES)
@pytest.mark.filterwarnings("ignore:Implicit dimension", "ignore:Using padding='same'")
def test_a_form_gives_what_torch_gives(shape, make):
    module, x = made(make, shape)
    model = import_module(module)
    with torch.no_grad():
        wanted = module(x).double()
    got = model(TorchOps(), model.weights, x.double())
    loose = isinstance(module, nn.GELU) or "gelu" in str(model.graph)
    assert got.shape == wanted.shape
    assert (got - wanted).abs().max() < (5e-4 if loose else 1e-6)


def test_the_reference_lists_every_layer_and_every_function():
    page = Path(__file__).parents[3] / "docs" / "reference" / "functions.md"
    words = set(re.findall(r"`(\w+)`", page.read_text(encoding="utf-8").split("## Layers")[1]))
    layers = {layer.__name__ for layer in LAYERS} - {"NonDynamicallyQuantizableLinear"}
    assert not (layers | set(CALLS)) - words


def test_every_layer_and_every_function_has_a_form_here():
    seen = set()
    for shape, forms in FORMS.items():
        for make in (make for makes in forms.values() for make in makes):
            model = import_module(made(make, shape)[0])
            for node in model.graph.nodes:
                if node.op == "call_module":
                    seen.add(type(model.layers[str(node.target)]))
                elif node.op.startswith("call"):
                    seen.add(call_name(node))
    assert not set(LAYERS) - seen
    assert not set(CALLS) - seen


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: F.max_pool2d(x, 2, ceil_mode=True), ["max_pool2d", "ceil_mode", "got True"]),
        (lambda x: F.max_pool2d(x, 2, dilation=2), ["dilation must be 1, got 2"]),
        (lambda x: F.max_pool2d(x, 2, return_indices=True)[0], ["not supported"]),
        (lambda x: F.avg_pool2d(x, 2, count_include_pad=False), ["count_include_pad", "False"]),
        (lambda x: F.softplus(x, beta=2), ["softplus", "beta must be 1.0, got 2"]),
        (lambda x: F.layer_norm(x, x.shape[-2:]), ["layer_norm", "last dimension", "(6, 8)"]),
        (lambda x: x.clamp(1, 0), ["clamp", "lower bound below", "got 1 and 0"]),
        (lambda x: x.sum().argmax(0), ["argmax", "got a number"]),
        (lambda x: x[:0].mean(), ["mean", "wanted numbers"]),
        (lambda x: nn.ReLU()(x), ["cannot trace", "not installed as a submodule"]),
        (lambda x: F.layer_norm(x, (6, 8)), ["layer_norm", "last dimension", "(6, 8)"]),
        (lambda x: F.conv2d(x, torch.ones(4, 4, 2, 2), padding="same"), ["'same'", "numbers"]),
    ],
)
def test_an_option_that_we_do_not_have_is_refused_by_name(function, words):
    def run():
        model = import_module(Form(function))
        model(TorchOps(), model.weights, torch.zeros(IMAGES))

    with pytest.raises(InputError) as caught:
        run()
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize("where", ["whole", "inside", "traced"])
def test_a_scripted_module_is_refused_by_name_with_what_to_do(where):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        if where == "traced":
            inner = torch.jit.trace(nn.Linear(3, 3), torch.zeros(1, 3))
        else:
            inner = torch.jit.script(nn.Linear(3, 3))
    module = nn.Sequential(nn.ReLU(), inner) if where == "inside" else inner
    with pytest.raises(InputError, match=r"torch\.jit\.script.*load_state_dict") as caught:
        import_module(module)
    assert ("layer '1'" in str(caught.value)) == (where == "inside")


def test_an_initial_state_that_is_not_zero_is_refused():
    class Started(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.GRU(4, 2)

        def forward(self, x):
            return self.layer(x, torch.zeros(1, x.size(1), 2) + 1)[0]

    model = import_module(Started())
    with pytest.raises(InputError, match="layer layer: wanted an initial state of zeros"):
        model(TorchOps(), model.weights, torch.zeros(3, 2, 4).double())


def test_the_gain_of_a_transposed_convolution_is_that_of_its_outputs():
    layer = nn.ConvTranspose2d(4, 2, 3, groups=2, bias=False).double()
    layer.weight.data = torch.arange(1.0, 37.0).reshape(4, 1, 3, 3).double()
    largest = layer(torch.ones(1, 4, 5, 5, dtype=torch.float64)).max()
    gain = import_module(layer).gains["weight"]
    assert largest <= gain < largest * 1.01


@pytest.mark.parametrize(
    "reduced", [lambda x: x.amax(5), lambda x: x.argmax(2), lambda x: x.sum((0, -3))]
)
def test_a_dimension_that_is_not_there_is_refused_by_name(reduced):
    class Reduced(nn.Module):
        def forward(self, x):
            return reduced(x)

    with pytest.raises(InputError, match=r"\(2, 3\) has no dimension (5|2|-3)"):
        import_module(Reduced())(TorchOps(), {}, torch.ones(2, 3))
