import pytest

from tacit.party import Progress


def test_stages_are_told_to_the_listener_and_remembered_in_order():
    heard = []
    progress = Progress(lambda *event: heard.append(event))
    with progress.stage("deal", 2) as advance:
        advance(1)
        advance(2)
    with progress.stage("compute"):
        pass
    assert heard == [("deal", 0, 2), ("deal", 1, 2), ("deal", 2, 2), ("compute", 0, 0)]
    deal, compute = progress.spans()
    assert (deal.name, compute.name) == ("deal", "compute")
    assert deal.start_s <= deal.end_s <= compute.start_s <= compute.end_s


def test_a_stage_that_fails_is_remembered_too():
    progress = Progress()
    with pytest.raises(KeyError), progress.stage("plan"):
        raise KeyError
    assert [span.name for span in progress.spans()] == ["plan"]
