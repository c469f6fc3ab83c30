"""What parties of a split model send, show and write down: foreseen, and when it is done."""

import hashlib
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tacit.matching import claims_of_matching, declare_matching
from tacit.party import Session
from tacit.result import Cost, Curve, Forecast, Leak, PartyReport, Result, Traffic
from tacit.ring import Prg
from tacit.split.codec import Codec, make_codec
from tacit.split.exchange import (
    CHECKPOINTS,
    PART,
    QUESTION,
    classes_leak,
    cut_leak,
    gradient_leak,
)
from tacit.split.packing import bits_below, packed_bytes
from tacit.split.serve import ANSWERS_AHEAD, HEAD_BYTES, SERVE_ROWS
from tacit.split.spec import SplitSpec
from tacit.split.stepping import steps
from tacit.split.top import Epoch


def forecast(
    spec: SplitSpec,
    *,
    widths: Mapping[str, int],
    rows: int,
    start: int = 0,
    questions: tuple[int, int] | None = None,
    matched: Mapping[str, int] | None = None,
) -> Forecast | None:
    """Work out messages, bytes and rounds of training and of one question.

    Args:
        spec: what is trained.
        widths: of the feature owners' cut layers.
        rows: to train on; 0 if a model that was trained before only serves.
        start: the step that training goes on from.
        questions: how many rows are asked about afterwards, and in batches of how many.
        matched: how many ids every owner had, in the order of the owners, if rows were matched.

    Returns:
        None if sizes depend on the values, as when an L1 model serves.
    """
    codecs = {
        owner: make_codec(spec.split.compress, widths[owner]) for owner in spec.feature_owners
    }
    if any(one.forward_bytes(1, is_training=False) is None for one in codecs.values()):
        return None
    tally = _Tally(spec.label_owner, codecs)
    tally.match(matched or {})
    if rows:
        tally.train(spec, rows, start)
    if questions is not None:
        tally.serve(*questions, classes=spec.classes)
    mark = f"{spec.digest().hex()} {sorted(widths.items())} {rows} {start} {questions} {matched}"
    return Forecast(
        cost=tally.cost(),
        timings=(),
        plan_hash=hashlib.sha256(mark.encode()).hexdigest()[:16],
    )


@dataclass(eq=False)
class _Tally:
    """Plays the messages in the order in which the parties write and read them.

    A message is one deeper than the deepest that its sender had read; see `transport.Meter`.
    """

    label_owner: str
    codecs: Mapping[str, Codec]
    clocks: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    sent: dict[tuple[str, str], list[int]] = field(
        default_factory=lambda: defaultdict(lambda: [0, 0])
    )
    longest: int = 0

    def match(self, counts: Mapping[str, int]) -> None:
        """Count the matching of ids: points go round the owners, then everyone shows them to all.

        See `matching.align_rows`.
        """
        for messages in declare_matching(counts) if counts else ():
            depths = [self._send(one.sender, one.receiver, one.payload_bytes) for one in messages]
            for one, depth in zip(messages, depths, strict=True):
                self._read(one.receiver, depth)

    def train(self, spec: SplitSpec, rows: int, start: int) -> None:
        """Count the steps; a batch's gradients are read when its place in the pipeline is."""
        under_way: deque[dict[str, int]] = deque()
        # The order of the rows does not matter here, only how many there are.
        for step in steps(rows, spec.train, order=Prg(bytes(16)), start=start):
            cuts = [
                {owner: self._up(owner, len(part), is_training=True) for owner in self.codecs}
                for part in step.parts
            ]
            under_way.append({})
            for depths, part in zip(cuts, step.parts, strict=True):
                for depth in depths.values():
                    self._read(self.label_owner, depth)
                for owner, codec in self.codecs.items():
                    size = codec.backward_bytes(len(part))
                    under_way[-1][owner] = self._send(self.label_owner, owner, size)
            room = 0 if step.is_pause else spec.train.in_flight - 1
            while len(under_way) > room:
                for owner, depth in under_way.popleft().items():
                    self._read(owner, depth)

    def serve(self, rows: int, batch: int, *, classes: int) -> None:
        """Count one question and the word that no other comes."""
        self._announce()
        answers: list[dict[str, int]] = []
        for number, at in enumerate(range(0, rows, batch)):
            count = min(batch, rows - at)
            depths = [self._up(owner, count, is_training=False) for owner in self.codecs]
            for depth in depths:
                self._read(self.label_owner, depth)
            size = packed_bytes(count, bits_below(classes))
            answers.append(
                {owner: self._send(self.label_owner, owner, size) for owner in self.codecs}
            )
            if number >= ANSWERS_AHEAD:
                self._hear(answers[number - ANSWERS_AHEAD])
        for answer in answers[max(0, len(answers) - ANSWERS_AHEAD) :]:
            self._hear(answer)
        self._announce()

    def _announce(self) -> None:
        """Count what every owner says about a question, or that none comes."""
        heads = [self._send(owner, self.label_owner, HEAD_BYTES) for owner in self.codecs]
        for depth in heads:
            self._read(self.label_owner, depth)

    def cost(self) -> Cost:
        """Return what was counted."""
        traffic = tuple(
            Traffic(
                sender=sender, receiver=receiver, phase="online", messages=n, payload_bytes=size
            )
            for (sender, receiver), (n, size) in sorted(self.sent.items())
        )
        return Cost(traffic=traffic, offline_rounds=0, online_rounds=self.longest)

    def _up(self, owner: str, rows: int, *, is_training: bool) -> int:
        size = self.codecs[owner].forward_bytes(rows, is_training=is_training) or 0
        return self._send(owner, self.label_owner, size)

    def _send(self, sender: str, receiver: str, size: int) -> int:
        entry = self.sent[sender, receiver]
        entry[0] += 1
        entry[1] += size
        depth = self.clocks[sender] + 1
        self.longest = max(self.longest, depth)
        return depth

    def _read(self, reader: str, depth: int) -> None:
        self.clocks[reader] = max(self.clocks[reader], depth)

    def _hear(self, answer: Mapping[str, int]) -> None:
        for owner, depth in answer.items():
            self._read(owner, depth)


def leaks_of_split(
    spec: SplitSpec,
    widths: Mapping[str, int],
    trained: int,
    questions: int,
    parties: Sequence[str],
) -> Iterator[Leak]:
    """Yield what is told before and what crosses the cut; at most, where that hangs on values."""
    yield from PART.leaks_of_all(parties, parties)
    if trained:
        yield from CHECKPOINTS.leaks_of_all(parties, parties)
    if questions:
        yield from QUESTION.leaks_of_all(widths, (spec.label_owner,))
    for owner, width in widths.items():
        codec = make_codec(spec.split.compress, width)
        sent = trained * spec.train.epochs * (codec.training.count or width)
        asked = questions * (codec.serving.count or width)
        for leak in (
            cut_leak(spec.label_owner, owner, "training", sent),
            gradient_leak(spec, owner, sent),
            cut_leak(spec.label_owner, owner, "serving", asked),
            classes_leak(owner, questions),
        ):
            if leak.elements:
                yield leak


@dataclass(frozen=True, kw_only=True)
class Done:
    """What was done.

    Attributes:
        widths: of the feature owners' cut layers.
        trained: how many rows were trained on; 0 if a model that was trained before served.
        start: from which step on.
        asked: how many rows were asked about.
        matched: how many ids every owner had, if rows were matched.
    """

    widths: Mapping[str, int]
    trained: int = 0
    start: int = 0
    asked: int = 0
    matched: Mapping[str, int] = field(default_factory=dict)


def summarise(
    session: Session,
    spec: SplitSpec,
    done: Done,
    *,
    name: str,
    launched: str,
    report: PartyReport,
) -> Result:
    """Write down one party's view.

    Args:
        session: our end.
        spec: what was trained.
        done: what was done.
        name: of the result.
        launched: how the parties were started.
        report: what we used.
    """
    plan = forecast(
        spec,
        widths=done.widths,
        rows=done.trained,
        start=done.start,
        questions=(done.asked, SERVE_ROWS) if done.asked else None,
        matched=done.matched,
    )
    return Result(
        kind="split",
        name=name,
        protocol=spec.about,
        launched=launched,
        parties=(report,),
        forecast=plan,
        metered=session.cost(),
        leakage=session.ledger.entries(),
        claims=(*claims_of_matching(done.matched), *spec.claims()),
        utility=(),
    )


def draw_epochs(epochs: Sequence[Epoch]) -> tuple[Curve, ...]:
    """Draw loss and accuracy while training, against the bytes that had travelled."""
    megabytes = [one.bytes_so_far / 1e6 for one in epochs]
    return (
        Curve(
            title="Accuracy against bytes",
            x_label="payload sent and received by the label owner (MB)",
            y_label="accuracy on the rows trained on",
            name="training",
            points=tuple(zip(megabytes, (one.accuracy for one in epochs), strict=True)),
        ),
        Curve(
            title="Loss",
            x_label="epoch",
            y_label="cross entropy",
            name="training",
            points=tuple((float(i), one.loss) for i, one in enumerate(epochs, start=1)),
        ),
    )
