"""The frame of jobs: a spec that knows nothing of jobs, and what a job file has beside it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from tacit.jobs.config import Job, LoneJob, job_digest, shared_content
from tacit.jobs.fields import gather, list_settings, walk
from tacit.spec import LOCAL, ListedError, Party, parties_in, read_record, refuse, refuse_together


@dataclass(frozen=True, kw_only=True)
class Crop:
    """[data.owners.NAME]: what grows."""

    acres: int = 1
    shed: str = field(default="", metadata=LOCAL)


@dataclass(frozen=True, kw_only=True)
class FarmSpec:
    """Fields of several owners.

    Attributes:
        owners: of the fields.
        rain: how much.
    """

    owners: Mapping[Party, Crop]
    neighbours: tuple[Party, ...] = ()
    dealer: Party | None = None
    rain: float | None = None

    def __post_init__(self):
        if self.rain is not None and self.rain < 0:
            refuse("rain", f"wanted at least 0, got {self.rain}")

    def settled(self):
        return replace(self, rain=1.0 if self.rain is None else self.rain)


@dataclass(frozen=True, kw_only=True)
class FarmJob(FarmSpec, Job):
    """A job of a farm."""

    def __post_init__(self):
        refuse_together(super().__post_init__, self.check_parties)

    def role(self, party):
        return "farmer"


@dataclass(frozen=True, kw_only=True)
class LoneFarm(FarmSpec, LoneJob):
    alone = "a farm has no parties"
    does = "farms"

    def __post_init__(self):
        refuse_together(super().__post_init__, self.check_parties)


RAW = {
    "job": {"name": "farm", "kind": "farm"},
    "parties": {"ann": {}, "bob": {}},
    "owners": {"ann": {"acres": 2}, "bob": {}},
}


def complaint(raw, record=FarmJob):
    with pytest.raises(ListedError) as caught:
        read_record(raw, record, source="job.toml")
    return str(caught.value)


def test_names_of_parties_are_found_by_their_keys():
    job = read_record(RAW | {"neighbours": ["bob", "ann"], "dealer": "bob"}, FarmJob, source="x")
    assert dict(parties_in(job)) == {
        "owners.ann": "ann",
        "owners.bob": "bob",
        "neighbours[0]": "bob",
        "neighbours[1]": "ann",
        "dealer": "bob",
    }


def test_what_the_spec_and_what_the_frame_refuse_is_said_at_once():
    said = complaint(RAW | {"rain": -1.0, "dealer": "bo"})
    assert "rain: wanted at least 0, got -1.0" in said
    assert "dealer: wanted one of the parties ann, bob, got 'bo'; did you mean 'bob'?" in said


def test_a_party_that_nothing_names_is_one_too_many():
    assert "parties.bob: has no part" in complaint(RAW | {"owners": {"ann": {}}})


def test_a_job_that_runs_alone_has_no_parties():
    said = complaint(RAW | {"rain": -1.0}, LoneFarm)
    assert "parties: a farm has no parties" in said
    assert "rain: wanted" in said
    job = read_record({key: RAW[key] for key in ("job", "owners")}, LoneFarm, source="x")
    assert job.role("here") == "farms"


def test_the_digest_covers_the_settled_spec_but_not_what_is_local():
    one = read_record(RAW, FarmJob, source="x")
    shed = RAW | {"owners": {"ann": {"acres": 2, "shed": "red"}, "bob": {}}}
    assert shared_content(one)["rain"] == 1.0
    assert job_digest(one) == job_digest(read_record(shed, FarmJob, source="x"))
    assert job_digest(one) == job_digest(read_record(RAW | {"rain": 1.0}, FarmJob, source="x"))
    assert job_digest(one) != job_digest(read_record(RAW | {"rain": 2.0}, FarmJob, source="x"))


def test_the_form_asks_for_the_spec_and_what_waits_and_shows_comes_last():
    assert [one.name for one in list_settings(FarmJob)] == [
        *("job", "parties", "owners", "neighbours", "dealer", "rain", "network", "report")
    ]
    assert dict(walk(FarmJob))["rain"].words == "how much"
    given = {"job.name": "farm", "job.kind": "farm", "owners.ann.acres": "3", "rain": "2"}
    names = {"parties": ["ann", "bob"], "owners": ["ann", "bob"]}
    raw = gather(FarmJob, lambda key: given.get(key, ""), lambda key: names.get(key, []))
    assert read_record(raw, FarmJob, source="x").owners["ann"].acres == 3
