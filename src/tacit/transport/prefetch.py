"""The thread that reads ahead while nobody waits for a frame."""

import threading
from collections.abc import Callable

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
