"""A link over two one-way lanes: channels, failures, time-outs and the meter."""

import threading
from collections import deque
from collections.abc import Callable
from time import monotonic, sleep

from tacit.errors import DisagreementError, LinkClosed, LinkError, LinkTimeout, PartyError
from tacit.result import Phase
from tacit.transport.frame import (
    BYE,
    DATA,
    FAIL,
    Frame,
    Packet,
    channel_of,
    control,
    fail,
    head_of,
    read_fail,
)
from tacit.transport.link import TICK_S, Intake, LinkLimits, Outlet, Patience
from tacit.transport.meter import Meter

PACKET_BYTES = 1024
"""What a packet costs beside its payload, so that a flood of empty frames is bounded too."""


class Stash:
    """First in, first out within a channel. Not locked: its owner does that."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._channels: dict[str, deque[Packet]] = {}

    def add(self, packet: Packet) -> None:
        """Keep a packet for later."""
        self._channels.setdefault(packet.head.channel, deque()).append(packet)
        self.nbytes += packet.head.payload_bytes + PACKET_BYTES

    def pop(self, channel: str) -> Packet | None:
        """Return the oldest packet of a channel, or None."""
        waiting = self._channels.get(channel)
        if waiting is None:
            return None
        packet = waiting.popleft()
        if not waiting:
            del self._channels[channel]
        self.nbytes -= packet.head.payload_bytes + PACKET_BYTES
        return packet

    def clear(self) -> None:
        """Let go of everything."""
        self._channels.clear()
        self.nbytes = 0


SHORTEST_PAUSE_S = 0.001
LONGEST_PAUSE_S = 0.02


class Prefetcher:
    """Calls ``read_ahead`` every 1 ms while bytes come, and down to every 20 ms while none do.

    It looks only when nobody is in ``recv``: a peer can stream ahead while we compute, and a
    ping-pong never pays for a second thread.
    """

    def __init__(self, read_ahead: Callable[[], bool], *, name: str) -> None:
        self._read_ahead = read_ahead
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"tacit-read-{name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for it."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        pause_s = SHORTEST_PAUSE_S
        while not self._stop.wait(pause_s):
            moved = self._read_ahead()
            pause_s = SHORTEST_PAUSE_S if moved else min(2 * pause_s, LONGEST_PAUSE_S)


GRACE_S = 1.0
"""How long a broken sending lane waits for the receiving lane to say why."""


class _Waiter:
    """A thread that waits while another reads, and is woken alone."""

    __slots__ = ("channel", "is_served", "woken")

    def __init__(self, lock: threading.Lock, channel: str) -> None:
        self.woken = threading.Condition(lock)
        self.channel = channel
        self.is_served = False


class Line:
    """A link. Whoever waits reads: the first thread in ``recv`` reads for all that wait.

    A packet wakes the thread that waits for it and no other; a reader that leaves wakes one to
    read on. While nobody is in ``recv``, a prefetcher may read instead.
    """

    def __init__(
        self,
        peer: str,
        outlet: Outlet,
        intake: Intake,
        *,
        meter: Meter,
        patience: Patience,
        limits: LinkLimits,
        reads_ahead: bool = False,
    ) -> None:
        self._peer = peer
        self._outlet = outlet
        self._intake = intake
        self._meter = meter
        self._patience = patience
        self._limits = limits
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._stash = Stash()
        self._is_reading = False
        self._waiters: list[_Waiter] = []
        self._failure: PartyError | None = None
        self._has_ended = False  # the peer said goodbye
        self._is_closed = False
        self._prefetcher = Prefetcher(self.read_ahead, name=peer) if reads_ahead else None

    @property
    def peer(self) -> str:
        """Return the name of the party at the other end."""
        return self._peer

    @property
    def failure(self) -> PartyError | None:
        """Return, as a new exception, what reading has found wrong with this link, if anything."""
        return self._failure.again() if self._failure is not None else None

    def send(self, tag: str, frame: Frame, *, phase: Phase = "online") -> None:
        """Send a frame; see Link."""
        self.put(self.stamp(tag, frame, phase))

    def recv(self, tag: str) -> Frame:
        """Return the next frame of the tag's channel; see Link."""
        return self.take(tag).frame

    def close(self, *, failure: tuple[str, str] | None = None) -> None:
        """Send what is queued, say goodbye or what failed, and close; see Link."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            for waiter in self._waiters:
                waiter.woken.notify()
        self._outlet.finish(fail(*failure) if failure else control(BYE), flush=failure is None)
        self._release()

    def kill(self) -> None:
        """Close both lanes without a word, as a crash would."""
        with self._changed:
            self._is_closed = True
        self._outlet.kill()
        self._release()

    def stamp(self, tag: str, frame: Frame, phase: Phase) -> Packet:
        """Check and count a frame as sent now; see PacketLink."""
        head = head_of(tag, frame, phase, limit=self._limits.max_frame_bytes)
        return Packet(head, self._meter.count_sent(self._peer, phase, head.payload_bytes), frame)

    def put(self, packet: Packet) -> None:
        """Put a stamped packet on its way; see PacketLink."""
        if self._failure or self._has_ended or self._is_closed:
            raise self._reason(f"taking {packet.head.tag!r}")
        try:
            self._outlet.put(packet, check=self._check_blocked_send)
        except OSError as error:
            raise self._explain(error, packet) from error

    def take(self, tag: str) -> Packet:
        """Return the next packet of the tag's channel; see PacketLink."""
        channel = channel_of(tag)
        with self._lock:
            packet = self._stash.pop(channel) or self._await_turn(tag, channel)
        if packet is None:
            try:
                packet = self._read_until(tag, channel)
            finally:
                self._end_turn()
        head = packet.head
        if head.tag != tag:
            raise DisagreementError(self._peer, f"wanted {tag!r}, got {head.tag!r}")
        self._meter.count_taken(self._peer, head.phase, head.payload_bytes, packet.depth)
        return packet

    def read_ahead(self) -> bool:
        """Read what is there while nobody waits; return whether anything was."""
        with self._changed:
            if self._is_reading or self._failure or self._has_ended or self._is_closed:
                return False
            self._is_reading = True
        moved = False
        try:
            while not (self._waiters or self._is_full() or self._is_closed or self._has_ended):
                packet = self._intake.take()
                if packet is not None:
                    self._file(packet)
                elif not self._intake.is_ready():
                    break
                else:
                    moved = self._intake.fill() or moved
        except PartyError as error:
            self._failure = error.again()
        finally:
            self._end_turn()
        return moved

    def _is_full(self) -> bool:
        return self._stash.nbytes >= self._limits.prefetch_bytes

    def _await_turn(self, tag: str, channel: str) -> Packet | None:
        """Wait, holding the lock, for a packet or (None) for the turn to read."""
        begun, waiter = monotonic(), None
        while True:
            if not self._is_reading:
                if self._failure or self._has_ended or self._is_closed:
                    raise self._reason(f"sending {tag!r}")
                self._is_reading = True
                return None
            waiter = waiter or _Waiter(self._lock, channel)
            self._waiters.append(waiter)
            waiter.woken.wait(TICK_S)
            self._waiters.remove(waiter)
            waiter.is_served = False
            packet = self._stash.pop(channel)
            if packet is not None:
                return packet
            self._check_clocks(tag, begun)

    def _end_turn(self) -> None:
        with self._lock:
            self._is_reading = False
            for waiter in self._waiters:
                if not waiter.is_served:
                    waiter.woken.notify()
                    break
            if self._is_closed:
                self._changed.notify_all()

    def _read_until(self, tag: str, channel: str) -> Packet:
        """Read until a packet of the channel comes; it is our turn."""
        begun = monotonic()
        try:
            while True:
                packet = self._intake.take()
                if packet is None and self._intake.fill():
                    packet = self._intake.take()
                if packet is None:
                    self._check_clocks(tag, begun)
                elif packet.head.channel == channel and packet.head.kind == DATA:
                    return packet
                else:
                    self._file(packet)
                    if self._has_ended or self._is_closed:
                        raise self._reason(f"sending {tag!r}")
        except PartyError as error:
            if not isinstance(error, LinkTimeout):
                self._failure = self._failure or error.again()
            raise

    def _file(self, packet: Packet) -> None:
        """Stash data; act on a word from the other end."""
        if packet.head.kind == DATA:
            with self._lock:
                if self._is_closed:  # nobody will ask for it
                    return
                self._stash.add(packet)
                for waiter in self._waiters:
                    if waiter.channel == packet.head.channel:
                        waiter.is_served = True
                        waiter.woken.notify()
            if self._stash.nbytes > self._limits.stash_bytes:
                raise LinkError(
                    self._peer,
                    f"sent more than {self._limits.stash_bytes} bytes that nobody asked for,"
                    f" the last as {packet.head.tag!r}; raise stash_bytes if that is meant",
                )
        elif packet.head.kind == FAIL:
            raise PartyError(*read_fail(packet), said_by=self._peer)
        elif packet.head.kind == BYE:
            self._has_ended = True

    def _check_clocks(self, tag: str, begun: float) -> None:
        """Raise if the wait that began at ``begun`` has lasted too long, or the link is gone."""
        now = monotonic()
        if self._is_closed:
            raise LinkClosed(self._peer, "this end of the link is closed")
        if self._outlet.error is not None and now - max(begun, self._intake.last_heard) > GRACE_S:
            raise LinkClosed(self._peer, f"the connection broke: {self._outlet.error}")
        silent_s = now - max(begun, self._intake.last_heard)
        if silent_s > self._patience.silence_s:
            raise LinkTimeout(
                self._peer, f"was silent for {silent_s:.1f} s while {tag!r} was wanted"
            )
        if now - begun > self._patience.stall_s:
            raise LinkTimeout(
                self._peer, f"is alive but did not send {tag!r} within {self._patience.stall_s:g} s"
            )

    def _check_blocked_send(self, tag: str, begun: float) -> None:
        """Raise if a send that waits for room waits in vain."""
        if self._failure or self._has_ended or self._is_closed:
            raise self._reason(f"taking {tag!r}")
        silent_s = monotonic() - max(begun, self._intake.last_heard)
        # A full stash stops our own reading; then the silence is not the peer's.
        if silent_s > self._patience.silence_s and not self._is_full():
            raise LinkTimeout(
                self._peer, f"was silent for {silent_s:.1f} s while it should take {tag!r}"
            )

    def _explain(self, error: OSError, packet: Packet) -> PartyError:
        """Find out from the receiving lane why the sending lane broke."""
        deadline = monotonic() + GRACE_S
        while not (self._failure or self._has_ended or self._is_closed):
            if monotonic() > deadline or self._is_full():
                kind = LinkTimeout if isinstance(error, TimeoutError) else LinkClosed
                return kind(self._peer, f"the connection broke: {error}")
            if not self.read_ahead():
                sleep(TICK_S / 10)
        return self._reason(f"taking {packet.head.tag!r}")

    def _reason(self, undone: str) -> PartyError:
        """Return, as a new exception, why this link can do no more."""
        if self._is_closed:
            return LinkClosed(self._peer, "this end of the link is closed")
        if self._failure is not None:
            return self._failure.again()
        return LinkClosed(self._peer, f"finished before {undone}")

    def _release(self) -> None:
        """Give back what this link holds, now: the cycle collector does not look at bytes."""
        prefetcher, self._prefetcher = self._prefetcher, None  # it and we hold each other
        if prefetcher is not None:
            prefetcher.stop()
        with self._changed:
            self._changed.wait_for(lambda: not self._is_reading, timeout=GRACE_S)
            self._stash.clear()
        self._intake.close()
