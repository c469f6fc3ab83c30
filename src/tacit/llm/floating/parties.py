"""Owner and dealer of inference in floating-point shares, and what all three do alike."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from tacit.errors import ConfigError, DisagreementError
from tacit.llm.floating.interpreters import (
    LARGEST,
    DealerInterpreter,
    Mail,
    OwnerInterpreter,
    Scales,
)
from tacit.llm.floating.noise import Noise, to_grid
from tacit.llm.floating.program import MaskedValue, Rows, run_pass
from tacit.llm.floating.sizes import learn, measure, name_of, publish, size_names
from tacit.llm.model.architecture import Architecture, LanguageModel
from tacit.llm.permuted.allowance import Account
from tacit.llm.permuted.prf_stream import PrfStream, deal_pads, pad_table, pads
from tacit.llm.permuted.seats import Seats
from tacit.llm.permuted.setup import recv_key, send_key
from tacit.llm.sealed.bounds import weight_shapes
from tacit.llm.sealed.folded import fold
from tacit.llm.sealed.passes import PASS_WORDS, Pass, read_pass
from tacit.party import Session
from tacit.result import Claim
from tacit.ring import KEY_BYTES, Prg

CLAIM = Claim(
    subject="a chat in floating-point shares",
    guarantee="no guarantee",
    assumptions=(
        "every value is covered by Gaussian noise λ times as large, and rounded to a public grid: "
        "one look is an estimate of the value, off by λ times its size",
        "whoever sees n looks at one value averages the noise down to λ / √n times its size; one "
        "text is looked at in every layer",
        "all parties follow the protocol, and the dealer works with neither of the others",
    ),
)
NEXT, KEY, NAME = "llm/pass", "setup/float key", "llm/name"
_MOST = 16
"""How many conversations of a session are kept: those used last."""


@dataclass(frozen=True, eq=False)
class FloatingVault:
    """What the owner keeps for one user: folded weights, usual sizes, the key of their noise."""

    architecture: Architecture
    weights: Mapping[str, Tensor]
    scales: Scales
    key: bytes = field(default_factory=lambda: Prg.from_os().bytes(KEY_BYTES))
    account: Account = field(default_factory=Account)

    def for_user(self, account: Account | None = None) -> "FloatingVault":
        """Return a vault of the same model for another user, with a key of its own."""
        return replace(self, key=Prg.from_os().bytes(KEY_BYTES), account=account or Account())

    def sweep(self) -> None:
        """Do nothing: a session leaves nothing behind."""

    forget = sweep


def open_floating_vault(model: LanguageModel, *, ratio: float = 100.0) -> FloatingVault:
    """Prepare a model for floating-point shares; ``ratio`` is λ.

    Raises:
        ConfigError: doubles cannot carry noise of that ratio.
    """
    check_ratio(ratio)
    weights = {
        name_of(name): value.contiguous() for part in fold(model) for name, value in part.items()
    }
    scales = Scales(ratio, measure(model.architecture, weights))
    return FloatingVault(model.architecture, weights, scales)


def check_ratio(ratio: float) -> None:
    """Refuse a λ that hides nothing or that doubles cannot carry."""
    if not 1 <= ratio <= LARGEST:
        raise ConfigError(
            f"noise must be 1 to {LARGEST:g} times as large as what it covers, got {ratio:g}; "
            "beyond that, doubles lose what it covers"
        )


def matrices(a: Architecture) -> dict[str, tuple[int, ...]]:
    """List the maps of a pass with the shapes of their weights."""
    shapes = {name_of(name): shape for name, shape in weight_shapes(a).items()}
    return {
        name.removesuffix(".weight"): shape
        for name, shape in shapes.items()
        if name.endswith(".weight")
    }


def draw_mask(key: bytes, name: str, shape: tuple[int, ...], scales: Scales) -> Tensor:
    """Draw U of one matrix, as the owner or the dealer."""
    noise = Noise(PrfStream(Prg(key)))
    return noise.draw(f"U {name}", shape, scales.outer(f"{name}.weight"))


def agree(session: Session, a: Architecture, ratio: float) -> None:
    """Make sure that all three speak of the same model and noise."""
    text = f"floating {a!r} {ratio}"
    session.agree("model", hashlib.sha256(text.encode()).digest())


def hear_scales(session: Session, seats: Seats, a: Architecture, ratio: float) -> Scales:
    """Learn the owner's sizes."""
    return Scales(ratio, learn(session, seats.owner, size_names(a)))


def noise_with(session: Session, peer: str, run: int) -> Noise:
    """Return the noise of one pass that a peer and I draw alike."""
    return Noise(PrfStream(session.shared(peer).fork(f"floating {run}")))


def serve_floating_owner(
    session: Session, vault: FloatingVault, *, seats: Seats | None = None
) -> None:
    """Take part in a user's passes until it leaves.

    Guarantee: no guarantee; see `CLAIM`. The owner sees the text under noise.
    """
    seats, a = seats or Seats(), vault.architecture
    agree(session, a, vault.scales.ratio)
    publish(session, vault.scales.sizes)
    send_key(session, seats.dealer, KEY, vault.key)
    for name, shape in matrices(a).items():
        weight = vault.weights[f"{name}.weight"]
        masked = weight - draw_mask(vault.key, name, shape, vault.scales)
        words = to_grid(masked, vault.scales.outer(f"{name}.weight")).view(torch.int64)
        session.send(seats.user, f"setup/float {name}", words, phase="setup")
    talks: dict[int, Rows] = {}
    try:
        while (step := _hear(session, seats, a)) is not None:
            charge(vault.account, talks, step, a, seats.user)
            _own_pass(session, seats, vault, step, talks)
    finally:
        vault.account.clear()


def _own_pass(
    session: Session, seats: Seats, vault: FloatingVault, step: Pass, talks: dict[int, Rows]
) -> None:
    a, run = vault.architecture, session.begin_run()
    rows = find_rows(talks, step, seats.user)
    mail, noise = Mail(session, run), noise_with(session, seats.dealer, run)
    party = OwnerInterpreter(
        mail,
        user=seats.user,
        dealer=seats.dealer,
        noise=noise,
        scales=vault.scales,
        weights=vault.weights,
    )
    hot = MaskedValue(mail.recv(seats.user, (step.rows, a.vocab)), vault.scales.ratio)
    x = party.linear("embed", hot)
    if a.positions == "learned":
        places = vault.weights["positions"][step.past : step.past + step.rows]
        x = MaskedValue(x.share + places, x.spread)
    names = run_pass(party, a, step, x, rows)
    if names is not None:
        shift = int(session.recv(seats.user, f"{NAME}/{run}", (1,)))
        table = pad_table(names[0], pads(noise.prf, 1, a.vocab)[0], shift % a.vocab)
        session.send(seats.user, f"{NAME}/{run}", table)


def serve_floating_dealer(
    session: Session,
    architecture: Architecture,
    *,
    ratio: float = 100.0,
    seats: Seats | None = None,
    account: Account | None = None,
) -> None:
    """Deal for a user's passes until it leaves.

    Guarantee: the dealer learns how many tokens are read and written, when, and usual sizes.
    """
    seats, a, account = seats or Seats(), architecture, account or Account()
    check_ratio(ratio)
    agree(session, a, ratio)
    scales = hear_scales(session, seats, a, ratio)
    key = recv_key(session, seats.owner, KEY)
    masks = {name: draw_mask(key, name, shape, scales) for name, shape in matrices(a).items()}
    talks: dict[int, Rows] = {}
    try:
        while (step := _hear(session, seats, a)) is not None:
            charge(account, talks, step, a, seats.user)
            _deal_pass(session, seats, a, scales, masks, step, talks)
    finally:
        account.clear()


def _deal_pass(
    session: Session,
    seats: Seats,
    a: Architecture,
    scales: Scales,
    masks: Mapping[str, Tensor],
    step: Pass,
    talks: dict[int, Rows],
) -> None:
    run = session.begin_run()
    user, own = (noise_with(session, peer, run) for peer in (seats.user, seats.owner))
    party = DealerInterpreter(
        Mail(session, run),
        seats.owner,
        user=user,
        owner_noise=own,
        scales=scales,
        masks=masks,
    )
    x = party.linear("embed", hot_mask(user, step, a, scales))
    run_pass(party, a, step, x, find_rows(talks, step, seats.user))
    if step.is_scored:
        pad = deal_pads(user.prf, own.prf, 1, a.vocab)
        session.send(seats.user, f"{NAME}/pad {run}", pad, phase="offline")


def charge(
    account: Account, talks: Mapping[int, Rows], step: Pass, a: Architecture, user: str
) -> None:
    """Count the bytes that are kept after a pass, before it begins.

    Raises:
        FrameError: there is no room for them, or the user has had all tokens that it may.
    """
    row = 2 * a.layers * a.kv_heads * a.head_dim * torch.float64.itemsize
    kept = (one.keys[0].share.shape[0] for one in talks.values() if one.keys)
    account.settle(row * (sum(kept) + step.rows), user=user)
    account.spend(step.rows, user=user)


def hot_mask(noise: Noise, step: Pass, a: Architecture, scales: Scales) -> MaskedValue:
    """Draw r of the one-hot rows of a pass, as the user or the dealer."""
    shape = (step.rows, a.vocab)
    return MaskedValue(noise.draw("hot.mask", shape, scales.ratio), scales.ratio)


def find_rows(talks: dict[int, Rows], step: Pass, user: str) -> Rows:
    """Return the keys and values of a conversation, or begin it; the oldest makes room."""
    rows = talks[step.conversation] = talks.pop(step.conversation, Rows())
    while len(talks) > _MOST:
        del talks[next(iter(talks))]
    known = rows.keys[0].share.shape[0] if rows.keys else 0
    if step.past > known:
        raise DisagreementError(user, "asks for a conversation that is not kept here")
    return rows


def _hear(session: Session, seats: Seats, a: Architecture) -> Pass | None:
    words = session.recv(seats.user, NEXT, (PASS_WORDS,))
    return read_pass(words, sender=seats.user, architecture=a)
