"""The parties of a split job in threads, as the command runs them in processes."""

from tacit.cli.kind import Place
from tacit.cli.split import take_part
from tacit.party import Meeting, Usage, run_threads
from tacit.party.progress import Progress
from tacit.transport import Patience

PATIENCE = Patience(connect_s=10, silence_s=20, heartbeat_s=1, stall_s=40)


def run(job):
    """Let every party take its part, and return what each has in the end."""

    def party(session):
        usage, progress = Usage(), Progress()
        place = Place(
            search=(),
            launched="threads",
            report=lambda: usage.report(
                name=session.me, role=job.role(session.me), progress=progress
            ),
            out=job.out,
        )
        return take_part(session, job, place)

    meeting = Meeting(parties=tuple(job.parties), job_digest=b"j" * 32, patience=PATIENCE)
    return run_threads(dict.fromkeys(job.parties, party), meeting)
