"""A disk that forgets in a power cut what nobody has waited for, and one that is full."""

import errno
import os
import threading
from collections import defaultdict
from pathlib import Path


class Disk:
    """Follows what each thread has left unflushed: files by their number, names by their folder.

    A rename, a new file or a new folder is lost in a power cut until its folder is flushed, and
    what a file holds until the file is.
    """

    def __init__(self, monkeypatch, root):
        self.root, self.acts = Path(root).resolve(), []
        self._loose = defaultdict(set)
        self._real = {name: getattr(os, name) for name in ("open", "fsync", "replace", "mkdir")}
        for name in ("rename", "link"):  # no second way to give a file its name
            self._real[name] = getattr(os, name)
            monkeypatch.setattr(os, name, self._named(name))
        for name in ("open", "fsync", "replace", "mkdir"):
            monkeypatch.setattr(os, name, getattr(self, f"_{name}"))

    @property
    def loose(self):
        """What this thread would lose now."""
        return self._loose[threading.get_ident()]

    def forget(self):
        self._loose.clear()
        self.acts.clear()

    def _is_ours(self, path):
        return Path(path).is_relative_to(self.root)

    def _open(self, path, flags, *rest, **more):
        is_new = flags & os.O_CREAT and not os.path.lexists(path)
        number = self._real["open"](path, flags, *rest, **more)
        where = Path(os.path.realpath(path))
        # The lock beside a file holds nothing, and may be lost.
        if is_new and self._is_ours(where) and where.suffix != ".lock":
            self.loose.update({str(where), str(where.parent)})
        return number

    def _fsync(self, number):
        self._real["fsync"](number)
        where = os.path.realpath(f"/proc/self/fd/{number}")
        self.acts.append(("flush", Path(where).name if Path(where).is_file() else "folder"))
        self.loose.discard(where)

    def _replace(self, old, new, **more):
        assert str(old) not in self.loose, f"{old} takes its place before it is flushed"
        self._real["replace"](old, new, **more)
        if self._is_ours(new):
            self.acts.append(("rename", Path(new).name))
            self.loose.add(str(Path(new).parent))

    def _named(self, name):
        def act(old, new, **more):
            self._real[name](old, new, **more)
            if self._is_ours(new):
                self.loose.add(str(Path(new).parent))

        return act

    def _mkdir(self, path, *rest, **more):
        self._real["mkdir"](path, *rest, **more)
        if self._is_ours(os.path.realpath(path)):
            self.loose.add(str(Path(os.path.realpath(path)).parent))


def full_disk(monkeypatch, act):
    """Let one act fail as on a full disk: to make a file, to flush it, or to name it."""

    real = getattr(os, act)

    def fails(first, *rest, **more):
        is_writing = act != "open" or str(first).endswith(".part")
        if is_writing:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(first, *rest, **more)

    monkeypatch.setattr(os, act, fails)
