"""Watching a model's layers, so that a batch's gradients can be clipped record by record."""

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.utils._pytree import tree_flatten, tree_leaves

from tacit.dp.mixing import refuse_mixing, scrambled
from tacit.dp.terms import RULES, GradientTerm, bound_norms, find_terms, join_terms, least_factor
from tacit.errors import ConfigError

ENOUGH = 64
"""Records that are checked, in the first batches; a model that sorts a pair may leave it alone.

Later batches are checked as well, at every power of two, as weights that were 0 are no longer, and
where something is computed that was not before: a loss that begins after a warm-up, another mode.
"""
_TOLERANCE = 1e-3
_HALF_TOLERANCE = 0.05  # where autocast rounds what autograd says to 8 bits


@dataclass(frozen=True, eq=False)
class _Use:
    """One call of a layer: what went in, where its gradient will come back, and its version.

    An edge of the graph, not the output: an in-place function behind the layer would change that.
    """

    layer: nn.Module
    x: Tensor
    version: int
    edge: GradientEdge


@dataclass(frozen=True, eq=False)
class _Call:
    """One call of the model or of a part of it, and whether autocast was on."""

    module: nn.Module
    args: tuple[Any, ...]
    named: dict[str, Any]
    half: torch.dtype | None

    @property
    def lengths(self) -> dict[int, int]:
        """Return the first dimension of every tensor that goes in."""
        given = enumerate(tree_leaves((self.args, self.named)))
        return {n: len(one) for n, one in given if isinstance(one, Tensor) and one.ndim}


@final
class Ghost:
    """Clips gradients of single records without making them.

    Guarantee: what one record adds to `clipped_sum` has a norm of at most `clip`, up to the
    rounding of sums in the model's precision, if the loss of a record depends on that record alone.
    The first batches, 64 records in all, those whose number is a power of two, and those in whose
    graph, modes or arguments something is new are checked for that, every two records of a batch:
    what one of them does to what the model returns for others, also with other weights in place of
    those that are trained, to their losses and to what comes back to them, as far as gradients show
    it. They are checked for parameters that are used outside of their layers, and for what a call
    keeps in frozen parameters or for the next call, too; every batch is checked for buffers that
    the model has changed. What a record does to others
    outside of the model and without a gradient (statistics of the rows that go in, detached scores
    in a loss) is not seen.
    Cost: a backward pass without weights, and one product per layer; memory for what comes back to
    the layers' outputs. For a batch that is checked, forward and backward passes by the dozen.
    """

    def __init__(self, model: nn.Module) -> None:
        inner = getattr(model, "_orig_mod", model)  # what torch.compile wraps
        self.parameters = _find_parameters(inner)
        self._model: nn.Module = inner
        self._buffers = {name: b.detach().clone() for name, b in inner.named_buffers()}
        self._names = {id(parameter): name for name, parameter in self.parameters.items()}
        self._uses: list[_Use] = []
        self._calls: list[_Call] = []
        self._shared: dict[nn.Module, set[int]] = {}  # arguments that have kept their length
        self._checked = 0
        self._batches = 0
        self._known: set[Hashable] = set()  # what was computed in batches that were checked
        self._is_settled = False
        self._dtype = torch.float32
        for parameter in self.parameters.values():
            self._dtype = torch.promote_types(self._dtype, parameter.dtype)
        self._hooks = [
            *(
                part.register_forward_pre_hook(self._note, with_kwargs=True)
                for part in inner.modules()
                if part is inner or next(part.children(), None) is not None
            ),
            *(
                layer.register_forward_hook(self._watch, with_kwargs=True)
                for layer in inner.modules()
                if type(layer) in RULES and any(p.requires_grad for p in layer.parameters())
            ),
        ]

    @property
    def is_checked(self) -> bool:
        """Tell whether as many records as are checked at first have been."""
        return self._checked >= ENOUGH

    @property
    def _is_due(self) -> bool:
        """Tell whether the next batch is checked, whatever it computes."""
        is_power = (self._batches + 1) & self._batches == 0
        return not self._is_settled and (is_power or self._checked < ENOUGH)

    def trained(self) -> list[nn.Parameter]:
        """List what the model trains now, which may be more or less than what is clipped."""
        return [p for p in self._model.parameters() if p.requires_grad]

    def settle(self) -> None:
        """Check no batch from here on: whether it passes may tell something about its records."""
        self._is_settled = True

    def forget(self) -> None:
        """Drop what was seen of a batch that is not trained on."""
        self._uses.clear()
        self._calls.clear()

    def remove(self) -> None:
        """Take the hooks off the model."""
        for hook in self._hooks:
            hook.remove()
        self.forget()

    def clipped_sum(self, losses: Tensor, clip: float) -> dict[str, Tensor]:
        """Return the sum of the records' gradients by parameter, each clipped to `clip` in all.

        A record whose gradient is not finite adds nothing.
        """
        uses, self._uses = self._uses, []
        calls, self._calls = self._calls, []
        nodes = [] if self._is_settled else _nodes(losses)
        new = self._forms(nodes, calls) - self._known
        needs_check = self._is_due or (bool(new) and not self._is_settled)
        self._batches += 1
        self._check_buffers()
        if not uses:
            raise ConfigError("no trained layer of this model was called: are the losses a copy's?")
        calls = [call for call in calls if len(losses) in call.lengths.values()]
        for call in calls:
            others = {n for n, length in call.lengths.items() if length != len(losses)}
            self._shared[call.module] = self._shared.get(call.module, set()) | others
        if needs_check:
            _check_leaves(nodes, set(self._names))
            # A call of the whole model has those of its parts in it.
            whole = [call for call in calls if call.module is self._model]
            self._check_calls(whole or calls, len(losses))
        back = torch.autograd.grad(
            losses.sum(), [use.edge for use in uses], retain_graph=needs_check, allow_unused=True
        )
        # A pass that these losses do not come from, a look at other rows, say, has no gradients.
        seen = [(use, g) for use, g in zip(uses, back, strict=True) if g is not None]
        _check_uses([use for use, _ in seen], len(losses))
        with _full_precision(losses.device.type):
            terms = self._terms(seen, len(losses))
            if needs_check:
                is_half = any(g.element_size() < 4 for _, g in seen)
                tolerance = _HALF_TOLERANCE if is_half else _TOLERANCE
                _check_alone(losses, seen, tolerance)
                if self._check_complete(terms, losses, tolerance):
                    self._checked += len(losses)
                self._known |= new
            factors = least_factor(bound_norms(terms), clip).to(self._dtype)
            return {name: _total(found, factors) for name, found in terms.items()}

    def _watch(
        self, layer: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: Tensor
    ) -> None:
        # Layers of the table take one tensor and return one; what else goes in is not watched.
        if torch.is_grad_enabled() and output.requires_grad:
            x: Tensor = inputs[0] if inputs else named["input"]
            self._uses.append(_Use(layer, x, x._version, get_gradient_edge(output)))

    def _note(self, part: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        # Parts only where a batch is surely checked: what goes into them would be kept alive.
        if torch.is_grad_enabled() and (part is self._model or self._is_due):
            device = next(iter(self.parameters.values())).device.type
            is_on = torch.is_autocast_enabled(device)
            half = torch.get_autocast_dtype(device) if is_on else None
            self._calls.append(_Call(part, inputs, named, half))

    def _forms(self, nodes: list[Any], calls: list[_Call]) -> set[Hashable]:
        """Say what is computed: pairs of steps that follow each other, modes, and kinds of calls.

        Pairs and not the whole: layers that are dropped, or loops over times, bring nothing new.
        """
        found: set[Hashable] = {tuple(part.training for part in self._model.modules())}
        found |= {
            (_step(node), _step(before)) for node in nodes for before, _ in node.next_functions
        }
        for call in calls:
            leaves, form = tree_flatten((call.args, call.named))
            chosen = tuple(one if isinstance(one, bool | str) else None for one in leaves)
            found.add((call.module, str(form), chosen))
        return found

    def _check_calls(self, calls: list[_Call], records: int) -> None:
        """Refuse a model that mixes records, with weights as they are and with others at first."""
        others = scrambled(self.parameters) if self._checked < ENOUGH else {}
        device = next(iter(self.parameters.values())).device.type
        for call in calls:
            known = {n: self._names.get(id(p)) for n, p in call.module.named_parameters()}
            weights = {n: others[name] for n, name in known.items() if name in others}
            for some in [{}, weights] if weights else [{}]:
                with torch.autocast(device, call.half, enabled=call.half is not None):
                    refuse_mixing(
                        call.module,
                        call.args,
                        call.named,
                        records=records,
                        weights=some,
                        shared=self._shared[call.module],
                    )

    def _terms(
        self, seen: list[tuple[_Use, Tensor]], records: int
    ) -> dict[str, list[GradientTerm]]:
        found_good = _finite_records([(use.x, g) for use, g in seen], records)
        # Asked once, as a device must be waited for.
        is_good = None if bool(found_good.all()) else found_good
        by_use: dict[tuple[int, str], list[GradientTerm]] = {}
        for use, g in seen:
            found = find_terms(
                use.layer, _masked(use.x, is_good), _masked(g, is_good), dtype=self._dtype
            )
            for name, term in found.items():
                parameter = getattr(use.layer, name, None)
                if parameter is not None and parameter.requires_grad:
                    by_use.setdefault((id(use.layer), self._names[id(parameter)]), []).append(term)
        terms: dict[str, list[GradientTerm]] = {}
        for (_, name), found_terms in by_use.items():
            terms.setdefault(name, []).extend(join_terms(found_terms))
        if not terms:
            raise ConfigError("the losses do not depend on any layer that is trained")
        return terms

    def _check_buffers(self) -> None:
        """Refuse a model that keeps something of the rows beside its weights: no noise is on it."""
        for name, now in self._model.named_buffers():
            before = self._buffers.get(name)
            if before is None or not torch.equal(before.to(now), now):
                raise ConfigError(
                    f"the buffer {name} has changed since make_private: what a model keeps of rows "
                    "(running statistics, say) has no noise on it; take a model without that"
                )

    def _check_complete(
        self, terms: dict[str, list[GradientTerm]], losses: Tensor, tolerance: float
    ) -> bool:
        """Compare the sum of all records with what autograd says; False if that is not finite."""
        wanted = torch.autograd.grad(
            losses.sum(), list(self.parameters.values()), allow_unused=True
        )
        is_finite = True
        # A bias before a normalisation has no gradient but what is lost by rounding.
        least = tolerance / 64 * float(bound_norms(terms).sum())
        for (name, parameter), true in zip(self.parameters.items(), wanted, strict=True):
            ones = torch.ones(len(losses), dtype=self._dtype, device=parameter.device)
            found = _total(terms[name], ones) if name in terms else torch.zeros_like(parameter)
            expected = torch.zeros_like(parameter) if true is None else true
            if not bool(torch.isfinite(expected).all()):
                is_finite = False
                continue
            # Not of the sums: near an optimum those cancel, and rounding is all that is left.
            size = sum((term.norms().sum() for term in terms.get(name, [])), expected.norm())
            if bool((found - expected).norm() > tolerance * size + least):
                raise ConfigError(
                    f"{name} is used outside of its layer, where gradients of single records are "
                    "not known; call the layer itself, or freeze the parameter"
                )
        return is_finite


def _find_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """List what is trained, once each; refuse layers without per-record gradients by name."""
    for path, layer in model.named_modules():
        own = {name for name, p in layer.named_parameters(recurse=False) if p.requires_grad}
        problem = _problem(layer, own)
        if problem:
            raise ConfigError(f"{path or 'the model'} ({type(layer).__name__}): {problem}")
    found = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not found:
        raise ConfigError("the model has no parameter that is trained")
    return found


def _problem(layer: nn.Module, own: set[str]) -> str:
    if isinstance(layer, nn.modules.batchnorm._NormBase) and (
        layer.track_running_stats or isinstance(layer, nn.modules.batchnorm._BatchNorm)
    ):
        return "mixes or stores what records have in common; put nn.GroupNorm in its place"
    if isinstance(layer, nn.Embedding) and (
        layer.max_norm is not None or layer.scale_grad_by_freq or layer.sparse
    ):
        return "max_norm, scale_grad_by_freq and sparse are not known per record"
    if own and (type(layer) not in RULES or own - {"weight", "bias"}):
        known = ", ".join(sorted(kind.__name__ for kind in RULES))
        return f"no per-record gradients of its parameters; known are {known}; or freeze them"
    return ""


def _check_uses(uses: list[_Use], records: int) -> None:
    for use in uses:
        if use.x.ndim == 0 or len(use.x) != records:
            raise ConfigError(
                f"{type(use.layer).__name__} got {tuple(use.x.shape)} for {records} records; "
                "records must come first in what every trained layer takes"
            )
        if use.x._version != use.version:
            raise ConfigError(
                f"what {type(use.layer).__name__} took was changed in place afterwards; write the "
                "model without that"
            )


def _nodes(losses: Tensor) -> list[Any]:
    """List the steps of autograd that losses come from."""
    ahead: list[Any] = [losses.grad_fn]
    seen: dict[Any, None] = {}
    while ahead:
        node = ahead.pop()
        if node is not None and node not in seen:
            seen[node] = None
            ahead += [before for before, _ in node.next_functions]
    return list(seen)


def _step(node: Any) -> Hashable:
    """Say what a step does, and over which dimensions: a mean over a row is none over a batch."""
    return None if node is None else (node.name(), getattr(node, "_saved_dim", None))


def _check_leaves(nodes: list[Any], known: set[int]) -> None:
    """Refuse losses of more than this model: what comes before it may mix records, unseen."""
    for node in nodes:
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, nn.Parameter) and id(leaf) not in known:
            raise ConfigError(
                f"the losses depend on a parameter of shape {tuple(leaf.shape)} that is not of the "
                "model in make_private, where what it does to other records is not seen (a "
                "BatchNorm before a head, say); hand over the whole model, and freeze there what "
                "is not to be trained"
            )


def _check_alone(losses: Tensor, seen: list[tuple[_Use, Tensor]], tolerance: float) -> None:
    """Make sure that no record's loss depends on another record, as far as gradients tell.

    The losses whose number has a certain bit, and those that have it not: every two records are
    told apart by one of these halves, in both directions. What comes back to a half must be what
    comes back with all: a backward of one's own may mix what no loss does.
    """
    edges = [use.edge for use, _ in seen]
    numbers = torch.arange(len(losses), device=losses.device)
    for bit in range((len(losses) - 1).bit_length()):
        for value in (0, 1):
            is_in = (numbers >> bit) & 1 == value
            back = torch.autograd.grad(
                losses[is_in].sum(), edges, retain_graph=True, allow_unused=True
            )
            # 0 · NaN is NaN: a broken record is no sign of dependence.
            outside = (g[~is_in].nan_to_num(nan=0.0) for g in back if g is not None)
            if any(bool((g != 0).any()) for g in outside):
                raise ConfigError(
                    "the loss of one record depends on other records (a normalisation or a loss "
                    "over the batch?); clipping would not bound what one record does"
                )
            for (_, whole), g in zip(seen, back, strict=True):
                if g is not None and _differ(whole[is_in], g[is_in], tolerance):
                    raise ConfigError(
                        "what comes back to one record depends on other records (a hook or a "
                        "backward over the batch?); clipping would not bound what one record does"
                    )


def _differ(one: Tensor, other: Tensor, tolerance: float) -> bool:
    one, other = (g.double().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0) for g in (one, other))
    return bool((one - other).norm() > tolerance * (one.norm() + other.norm()))


@contextmanager
def _full_precision(device: str) -> Iterator[None]:
    """Keep autocast and short products (TF32, bfloat16) away from norms and from the sum."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.autocast(device, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def _finite_records(pairs: list[tuple[Tensor, Tensor]], records: int) -> Tensor:
    is_good = torch.ones(records, dtype=torch.bool, device=pairs[0][1].device if pairs else None)
    for pair in pairs:
        for values in pair:
            if values.is_floating_point():
                is_good &= torch.isfinite(values).flatten(1).all(1)
    return is_good


def _masked(values: Tensor, is_good: Tensor | None) -> Tensor:
    """Put zeros in the rows of records that are not finite, if any: 0 · NaN is not 0."""
    if is_good is None or not values.is_floating_point():
        return values
    shaped = is_good.view(-1, *[1] * (values.ndim - 1))
    return torch.where(shaped, values, torch.zeros_like(values))


def _total(terms: list[GradientTerm], factors: Tensor) -> Tensor:
    first, *rest = (term.total(factors) for term in terms)
    for other in rest:
        first = first + other
    return first
