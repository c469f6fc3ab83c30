"""LSTM and GRU as functions of ops: unrolled, since the length of a sequence is public.

The products with the input are one for all steps; what a step costs is the product with the last
state and the functions of its gates.
"""

from collections.abc import Callable
from typing import Any

from torch import nn

from tacit.errors import InputError
from tacit.nn.running import Constant, Running

# Hidden value, and that of the cell where there is one.
State = tuple[Any, Any]
Step = Callable[[Any, State], State]


def lstm(run: Running, name: str, layer: nn.LSTM, x: Any, hx: Any = None) -> Any:
    """Apply an LSTM: all hidden values, and the last ones of the hidden state and the cell."""
    hidden, cells = (None, None) if hx is None else hx
    out, states = _unrolled(run, name, layer, x, hidden, cells)
    return out, states


def gru(run: Running, name: str, layer: nn.GRU, x: Any, hx: Any = None) -> Any:
    """Apply a GRU: all hidden values, and the last ones."""
    out, (last, _) = _unrolled(run, name, layer, x, hx, None)
    return out, last


def _unrolled(
    run: Running, name: str, layer: nn.LSTM | nn.GRU, x: Any, hidden: Any, cells: Any
) -> tuple[Any, State]:
    ops, is_single = run.ops, len(run.ops.shape(x)) == 2
    x = _widened(run, x, 0 if layer.batch_first else 1) if is_single else x
    x = ops.transpose(x, 0, 1) if layer.batch_first else x  # (steps, rows, width)
    ways = ("", "_reverse") if layer.bidirectional else ("",)
    lasts: list[State] = []
    for at in range(layer.num_layers):
        outs = []
        for way in ways:
            place = (len(lasts), is_single)
            start = (_initial(run, hidden, *place), _initial(run, cells, *place))
            step = _step(run, name, layer, f"l{at}{way}")
            given = run.affine(name, x, weight=f"weight_ih_l{at}{way}", bias=f"bias_ih_l{at}{way}")
            out, last = _walk(run, given, start, step, is_back=bool(way))
            outs.append(out)
            lasts.append(last)
        x = outs[0] if len(outs) == 1 else ops.concatenate(outs, dim=2)
    ends = [
        None if one[0] is None else ops.concatenate([_widened(run, h, 0) for h in one], dim=0)
        for one in zip(*lasts, strict=True)
    ]
    x = ops.transpose(x, 0, 1) if layer.batch_first else x
    if is_single:
        x = _part(run, x, 0 if layer.batch_first else 1, 0)
        ends = [None if one is None else _part(run, one, 1, 0) for one in ends]
    return x, (ends[0], ends[1])


def _walk(
    run: Running, given: Any, state: State, step: Step, *, is_back: bool
) -> tuple[Any, State]:
    """Go through the steps, forwards or backwards, and lay the hidden values out in order."""
    steps = range(run.ops.shape(given)[0])
    hidden: list[Any] = []
    for at in reversed(steps) if is_back else steps:
        state = step(_part(run, given, 0, at), state)
        hidden.append(_widened(run, state[0], 0))
    return run.ops.concatenate(hidden[::-1] if is_back else hidden, dim=0), state


def _step(run: Running, name: str, layer: nn.LSTM | nn.GRU, which: str) -> Step:
    size = layer.hidden_size

    def looked_back(h: Any, given: Any) -> Any:
        """Apply the weights of the last state; at the start they meet zeros."""
        if h is not None:
            return run.affine(name, h, weight=f"weight_hh_{which}", bias=f"bias_hh_{which}")
        bias = run.weight(name, f"bias_hh_{which}")
        nothing = run.ops.scale(given, 0.0)
        return nothing if bias is None else run.add(nothing, bias)

    def of_lstm(given: Any, state: State) -> State:
        h, c = state
        h, c = _lstm_step(run, run.ops.add(given, looked_back(h, given)), c, size)
        if layer.proj_size:
            h = run.affine(name, h, weight=f"weight_hr_{which}", bias=None)
        return h, c

    def of_gru(given: Any, state: State) -> State:
        return _gru_step(run, given, looked_back(state[0], given), state[0], size), None

    return of_lstm if isinstance(layer, nn.LSTM) else of_gru


def _lstm_step(run: Running, gates: Any, c: Any, size: int) -> State:
    """Let the gates (in, forget, new, out) make the next state and cell."""
    ops, gates = run.ops, run.capped(gates)
    open_ = ops.sigmoid(_columns(run, gates, *range(2 * size), *range(3 * size, 4 * size)))
    new = ops.tanh(_columns(run, gates, *range(2 * size, 3 * size)))
    enter = _columns(run, open_, *range(size))
    if c is None:
        c = ops.mul(enter, new)
    else:  # both products in one step
        both = ops.mul(
            _columns(run, open_, *range(2 * size)), ops.concatenate([new, run.capped(c)], dim=1)
        )
        c = ops.add(_columns(run, both, *range(size)), _columns(run, both, *range(size, 2 * size)))
    return ops.mul(_columns(run, open_, *range(2 * size, 3 * size)), ops.tanh(run.capped(c))), c


def _gru_step(run: Running, given: Any, back: Any, h: Any, size: int) -> Any:
    """Let the gates (reset, update, new) make the next state."""
    ops, gated, rest = run.ops, range(2 * size), range(2 * size, 3 * size)
    both = ops.add(_columns(run, given, *gated), _columns(run, back, *gated))
    open_ = ops.sigmoid(run.capped(both))
    reset = ops.mul(_columns(run, open_, *range(size)), run.capped(_columns(run, back, *rest)))
    new = ops.tanh(run.capped(ops.add(_columns(run, given, *rest), reset)))
    keep = _columns(run, open_, *range(size, 2 * size))
    if h is None:
        return ops.sub(new, ops.mul(keep, new))
    return ops.add(new, ops.mul(keep, ops.sub(run.capped(h), new)))


def _initial(run: Running, states: Any, at: int, is_single: bool) -> Any:
    """Return one part of an initial state, or None for zeros."""
    if states is None:
        return None
    if isinstance(states, Constant):
        if bool(states.values.any()):
            raise InputError("wanted an initial state of zeros, or one that is computed")
        return None
    part = _part(run, states, 0, at)
    return _widened(run, part, 0) if is_single else part


def _columns(run: Running, x: Any, *positions: int) -> Any:
    return run.ops.take(x, positions, dim=1)


def _part(run: Running, x: Any, axis: int, at: int) -> Any:
    """Take one index of a dimension, which disappears."""
    shape = run.ops.shape(x)
    taken = run.ops.take(x, (at,), dim=axis)
    return run.ops.reshape(taken, shape[:axis] + shape[axis + 1 :])


def _widened(run: Running, x: Any, axis: int) -> Any:
    """Put a dimension of one element in."""
    shape = run.ops.shape(x)
    return run.ops.reshape(x, (*shape[:axis], 1, *shape[axis:]))
