"""What owners and clients of a prediction announce, where they announce something else."""

from types import SimpleNamespace

import pytest

from tacit.errors import DisagreementError
from tacit.inference.service import once


@pytest.mark.parametrize(("count", "width"), [(4, 3), (0, 3), (5, -1)])
def test_an_owner_that_announces_other_rows_than_the_first_is_named(
    make_service_task, count, width
):
    said = {"ann": (5, 3), "bob": (count, width)}
    session = SimpleNamespace(me="deb", learn=lambda owner, fact: said[owner])
    with pytest.raises(DisagreementError, match=f"'bob' failed: announced {width} columns"):
        once._announce(session, make_service_task(), ("ann", "bob"), None)


def test_a_client_that_announces_rows_of_another_width_is_named(make_service_task, monkeypatch):
    monkeypatch.setattr(once, "share_input_facts", lambda *_, bound: ((3, 99), bound))
    with pytest.raises(DisagreementError, match=r"'ann' failed: announced rows of shape \(99,\)"):
        once.answer_once(
            SimpleNamespace(me="deb"), make_service_task(protocol="sealed"), client="ann"
        )
