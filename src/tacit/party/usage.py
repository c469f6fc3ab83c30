"""What a run took from this machine: seconds, processor time and memory."""

import resource
import socket
import sys
import time

from tacit.party.progress import Progress
from tacit.result import PartyReport


class Usage:
    """Measure from construction on."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._cpu_start = time.process_time()

    def report(self, *, name: str, role: str, progress: Progress) -> PartyReport:
        """Return this party's view of what it used; memory is the peak of the whole process."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return PartyReport(
            name=name,
            role=role,
            host=socket.gethostname(),
            seconds=time.monotonic() - self._start,
            cpu_seconds=time.process_time() - self._cpu_start,
            peak_memory_bytes=peak if sys.platform == "darwin" else peak * 1024,
            spans=progress.spans(),
        )
