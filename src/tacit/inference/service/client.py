"""The client of a prediction service: it asks two servers with a share each."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from tacit import ring
from tacit.crypto import Identity
from tacit.errors import DataError, DisagreementError, FrameError
from tacit.inference.service.queue import LARGEST_VISIT
from tacit.inference.service.sized import SizedModel, Told, count_of_sizes
from tacit.inference.service.spec import ServeSpec
from tacit.inference.service.task import ServiceTask
from tacit.mpc.boundary import Input, encode_input
from tacit.mpc.share import Spec
from tacit.transport import Credentials, Frame, Link, Meter, Patience, Peer, mesh

Tell = Callable[[int, int], None]
"""Hears how many rows are answered, and of how many."""


class PredictionClient:
    """Ask for predictions over links to both servers. For one thread.

    Guarantee: each server gets words that are uniform and independent of the rows; only the two
    together could read them. The answers come as two shares and are put together here.
    Cost: 1 round to both servers and back; 8 bytes per feature to each, 8 bytes per number of the
    answer from each.
    """

    def __init__(self, me: str, task: ServiceTask, links: Mapping[str, Link]) -> None:
        task.refuse_view()
        self._me = me
        self._task = task
        self._links = [links[name] for name in task.spec.roles.computing]
        self._prg = ring.Prg.from_os()
        self._asked = 0
        visit = torch.tensor((int(self._prg.words((1,))[0]) % LARGEST_VISIT,))
        for link in self._links:
            self._check_terms(link)
            link.send("visit/0", Frame("i64", (1,), ring.to_bytes(visit)), phase="setup")

    def ask(self, rows: Tensor, tell: Tell = lambda done, total: None) -> Tensor:
        """Return the predictions for rows: a class or probability each, or a row of scores.

        Many rows are asked about in blocks of the largest batch, one after the other: the servers
        keep one block of a client, and a client the shares of one.

        Args:
            rows: in the units and the order of the service.
            tell: hears after every block how many rows are answered, and of how many.

        Raises:
            DataError: rows are of another shape, too large or not finite, or a server refuses them.
            RangeError: a value is beyond the bound of the service.
            PartyError: a server failed.
        """
        self._task.prepare(rows[:1])  # rows of another shape are refused before any is asked about
        answers, done = torch.zeros((len(rows), self._task.width), dtype=torch.float64), 0
        for block in torch.split(rows, self._task.most_rows):
            answers[done : done + len(block)] = self._ask_part(self._task.prepare(block))
            done += len(block)
            tell(done, len(rows))
        if self._task.spec.reveal == "class":
            return answers[:, 0].round()
        return answers[:, 0] if isinstance(self._task.model, SizedModel) else answers

    def _ask_part(self, rows: Tensor) -> Tensor:
        task = self._task
        shape = tuple(rows.shape)
        spec = Spec.of(shape=shape, frac_bits=task.spec.frac_bits, bound=task.spec.bound)
        words = encode_input(Input(self._me, "rows", spec), rows.double())
        mask = self._prg.words(shape)  # a one-time pad: one server gets it, the other what it hides
        replies = self._exchange((mask, words - mask))
        return ring.decode(replies[0] + replies[1], frac_bits=task.spec.frac_bits)

    def _exchange(self, shares: tuple[Tensor, Tensor]) -> list[Tensor]:
        number, self._asked = self._asked, self._asked + 1
        for link, share in zip(self._links, shares, strict=True):
            frame = Frame("i64", tuple(share.shape), ring.to_bytes(share.contiguous()))
            link.send(f"ask/{number}", frame)
        frames = [link.recv(f"answer/{number}") for link in self._links]
        wanted = (len(shares[0]), self._task.width)
        return [
            self._read(link, frame, wanted) for link, frame in zip(self._links, frames, strict=True)
        ]

    def _read(self, link: Link, frame: Frame, wanted: tuple[int, int]) -> Tensor:
        if frame.dtype == "u8":
            reason = bytes(frame.data).decode(errors="replace")
            raise DataError(f"{link.peer!r} did not answer: {reason}")
        if frame.dtype != "i64" or frame.shape != wanted:
            raise FrameError(link.peer, f"wanted i64{wanted}, got {frame.dtype}{frame.shape}")
        return ring.from_bytes(frame.data, frame.dtype, frame.shape)

    def _check_terms(self, link: Link) -> None:
        theirs = link.recv("terms/0")
        if bytes(theirs.data) != self._task.digest():
            raise DisagreementError(
                link.peer,
                "offers another service than the job file says: the model's shape, what is "
                "revealed, precision, bounds, or columns and their scale differ",
            )


@contextmanager
def connected(
    me: str,
    spec: ServeSpec,
    *,
    name: str,
    servers: Mapping[str, Peer],
    identity: Identity,
    patience: Patience | None = None,
) -> Iterator[PredictionClient]:
    """Connect to both servers of a service of that name over TLS, and leave in good order."""
    links = mesh(
        me,
        servers,
        credentials=Credentials(identity.certificate_file, identity.key_file),
        listener=None,
        meter=Meter(me),
        patience=patience,
    )
    try:
        told = _hear_sizes(spec, list(links.values())) if spec.has_told_sizes else ()
        task = ServiceTask.of(spec, name=name, clients=(me,), told=told)
        yield PredictionClient(me, task, links)
    finally:
        for link in links.values():
            link.close()


def _hear_sizes(spec: ServeSpec, links: list[Link]) -> Told:
    """Hear from both servers how large the model is; what they say must be the same."""
    told = []
    for link in links:
        frame = link.recv("told/0")
        if frame.dtype != "i64" or frame.shape != (count_of_sizes(spec),):
            raise FrameError(link.peer, f"wanted sizes, got {frame.dtype}{frame.shape}")
        told.append(tuple(ring.from_bytes(frame.data, frame.dtype, frame.shape).tolist()))
    if len(set(told)) > 1:
        raise DisagreementError(links[-1].peer, "tells other sizes of the model than the others")
    return told[0]
