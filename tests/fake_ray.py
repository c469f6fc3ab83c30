"""A Ray cluster in this process: what is shared is kept, tasks run when they are submitted."""

from concurrent.futures import Future
from types import SimpleNamespace


class RayError(Exception):
    """What Ray says about itself."""


class RayTaskError(RayError):
    """What Ray wraps around the error of a task."""

    def __init__(self, cause):
        super().__init__(f"ray::task() {cause}")
        self.cause = cause


class Handle:
    def __init__(self, value):
        self.value = value


class FakeRay:
    """As much of Ray's module as `tacit.cluster` uses, with one core."""

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self, *, is_there=True, is_up=False):
        self.is_there, self.is_up, self.addresses = is_there, is_up, []

    def is_initialized(self):
        return self.is_up

    def init(self, *, address, **how):
        if not self.is_there:
            raise ConnectionError("nobody answers")
        self.addresses.append(address)
        self.is_up = True

    def shutdown(self):
        self.is_up = False

    def cluster_resources(self):
        return {"CPU": 1.0}

    def put(self, value):
        return Handle(value)

    def remote(self, **how):
        return lambda function: SimpleNamespace(remote=lambda *args: self._run(function, args))

    def _run(self, function, args):
        future = Future()
        try:
            future.set_result(
                function(*(one.value if isinstance(one, Handle) else one for one in args))
            )
        except Exception as error:
            future.set_exception(RayTaskError(error))
        return SimpleNamespace(future=lambda: future)
