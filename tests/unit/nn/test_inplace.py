"""Modules that change tensors in place, beside torch: the same numbers, or refused by name."""

import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tacit.errors import InputError
from tacit.nn import TorchOps, import_module
from tacit.split.models import cut


class Called(nn.Module):
    """A function of a linear layer's output, and of what else the module has."""

    def __init__(self, function):
        super().__init__()
        self.function, self.lin, self.relu = function, nn.Linear(4, 4), nn.ReLU(inplace=True)
        self.register_buffer("counter", torch.ones(4))
        self.cache = torch.zeros(4, dtype=torch.float64)

    def forward(self, x):
        return self.function(self, self.lin(x))


def made(function):
    torch.manual_seed(1)
    return Called(function).double().eval()


def same(module, x):
    with torch.no_grad():
        wanted = module(x.clone())
    model = import_module(module)
    got = model(TorchOps(), model.weights, x)
    return got.shape == wanted.shape and bool((got - wanted).abs().max() < 1e-9)


X = torch.rand(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 4 - 2


def added(y):
    z = y
    z += 1
    z *= 3
    z -= y
    z /= 2
    return y


def dropped(_, y):
    F.relu(y, inplace=True)
    return y * 1.0


def residual(self, y):
    out = self.relu(y)
    return y + out


def part(_, y):
    y[:, :2].add_(5)
    return y


def view(_, y):
    flat = y.view(-1)
    y += 1
    return flat


def copied(_, y):
    z = y.clone().view(-1)
    z.relu_()
    return y + z.view(3, 4)


def view_alone(_, y):
    flat = y.view(-1)
    flat += 1
    return torch.relu_(flat)


def constant(_, y):
    h = torch.zeros(4, dtype=torch.float64)
    h += y[0]
    return y + h + h


def numbers(_, y):
    rows = y.shape[0]
    kept = rows
    rows += 1
    rows **= 2
    return y * rows / kept


def kept_buffer(self, y):
    self.counter.add_(1)
    return y + self.counter


def kept_weight(self, y):
    self.lin.weight.data  # noqa: B018 - is looked at
    self.lin.bias.mul_(2)
    return y + self.lin.bias


def kept_cache(self, y):
    self.cache.add_(y[0])
    return y + self.cache


def assigned(_, y):
    y[:, 0] = 3
    return y


def halves(_, y):
    left, right = y.chunk(2, dim=1)
    left.relu_()
    return left + right


FOLLOWED = [lambda _, y: added(y), dropped, residual, view_alone, copied, constant, numbers]
REFUSED = [
    (part, "changes a tensor in place"),
    (view, "changes a tensor in place, of which operation 'view'"),
    (halves, "changes a tensor in place"),
    (kept_buffer, "'counter'"),
    (kept_weight, "lin.bias"),
    (kept_cache, "'cache' in place, which is the model's own"),
    (assigned, "'setitem'"),
]


@pytest.mark.parametrize("function", FOLLOWED)
def test_what_changes_a_tensor_changes_it_for_all_who_read_it_later(function):
    assert same(made(function), X)


@pytest.mark.parametrize(("function", "words"), REFUSED)
def test_what_is_not_followed_is_refused_by_name(function, words):
    with pytest.raises(InputError) as caught:
        import_module(made(function))
    assert words in str(caught.value)


def test_a_published_block_is_followed():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(
                nn.BatchNorm1d(4), nn.ReLU(inplace=True), nn.Dropout(0.5, inplace=True)
            )
            self.end = nn.Sequential(nn.Hardswish(inplace=True), nn.LeakyReLU(0.1, inplace=True))

        def forward(self, x):
            identity = x
            out = self.body(x)
            out += identity
            return self.end(out)

    assert same(nn.Sequential(Block(), nn.ReLU6(inplace=True)).double().eval(), X)


def test_a_model_that_is_cut_still_changes_what_it_changes():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x):
            y = self.first(x)
            z = y
            z *= 3
            return self.second(y)

    model = Two().double().eval()
    bottom, top = cut(model, "first")
    assert torch.equal(top(bottom(X)), model(X))


# What a random program does with a value and, perhaps, another one.
def augmented(x, y):
    x += y
    return x


def shrunk(x, _):
    x *= 0.5
    return x


FRESH = [
    lambda x, _: torch.relu(x),
    lambda x, _: x / x.size(-1) ** 0.5,
    lambda x, y: x + y,
    lambda x, _: x.clone(),
    lambda x, y: x * y - 1,
    lambda x, _: F.layer_norm(x, x.shape[-1:]),
    lambda x, _: x.amin((1,)),
    lambda x, _: x.amax((0, 1), keepdim=True),
    lambda x, _: x.amax(),
    lambda x, _: x.mean(dim=[-1], keepdim=True),
    lambda x, _: x.sum(),
    lambda x, y: torch.cat([x, y]),
    lambda x, y: torch.stack([y, x], -1),
]
VIEWS = [
    lambda x, _: x[:, :2],
    lambda x, _: x[1],
    lambda x, _: x.view(-1),
    lambda x, _: x.reshape(2, -1),
    lambda x, _: x.transpose(0, 1),
    lambda x, _: x.permute(1, 0).flatten(),
    lambda x, _: x.unsqueeze(0),
    lambda x, _: x.squeeze((0, 1)),
    lambda x, _: x.squeeze(),
    lambda x, _: x.chunk(2, -1)[1],
    lambda x, _: x.split(2)[0],
    lambda x, _: x.unflatten(-1, (2, -1)),
    lambda x, _: x.expand(2, -1, -1),
    lambda x, _: F.dropout(x, training=False),
    lambda x, _: x.detach().contiguous().to(x.dtype),
]
CHANGES = [
    lambda x, _: F.relu(x, True),
    lambda x, _: nn.functional.leaky_relu(x, 0.1, inplace=True),
    lambda x, _: F.hardtanh(x, -1.0, 1.0, True),
    lambda x, _: x.relu_(),
    lambda x, _: torch.relu_(x),
    lambda x, _: x.mul_(2).clamp_(-3, 3),
    lambda x, y: x.sub_(y, alpha=2),
    lambda x, _: x.tanh_(),
    lambda x, _: x.unsqueeze_(0),
    augmented,
    shrunk,
]


class Program(nn.Module):
    """Steps, each with the places of the values that it reads; what is returned, reads two."""

    def __init__(self, coins):
        super().__init__()
        self.steps, self.read = [], ()
        values = [X * 1.0]
        while len(self.steps) < 7:
            step = coins.choice(coins.choice((FRESH, VIEWS, CHANGES, CHANGES)))
            at, other = coins.randrange(len(values)), coins.randrange(len(values))
            try:
                values.append(step(values[at], values[other]))
            except (RuntimeError, IndexError):
                continue  # these shapes do not go together
            self.steps.append((step, at, other))
        self.read = coins.sample(range(len(values)), 2)

    def forward(self, x):
        values = [x * 1.0]
        for step, at, other in self.steps:
            values.append(step(values[at], values[other]))
        return torch.cat([values[at].reshape(-1) for at in self.read])


def test_random_programs_give_what_torch_gives_or_are_refused_by_name():
    coins, right, words = random.Random(0), 0, set()  # noqa: S311 - no secret
    for number in range(400):
        program = Program(coins)
        try:
            assert same(program, X), number
            right += 1
        except InputError as error:
            words.add("in place" in str(error) or str(error))
    assert words == {True}
    assert right > 150


def test_the_state_of_a_trained_module_loads_where_it_has_tensors_of_its_own():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin, self.places = nn.Linear(4, 4), torch.arange(3)
            self.table = nn.Embedding(3, 4)
            self.register_buffer("mask", torch.ones(3, 3).tril().bool(), persistent=False)

        def forward(self, x):
            y = self.lin(x) + self.table(self.places)
            return F.scaled_dot_product_attention(y, y, y, self.mask) + torch.zeros(4)

    module = Own()
    model = import_module(module)
    module.load_state_dict(model.state(model.weights))
