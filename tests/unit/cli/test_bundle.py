"""What a client is handed: enough to ask; no weight, nobody's key, nothing of other clients."""

import io
import zipfile

import pytest

from tacit.crypto import make_identity
from tacit.errors import ConfigError
from tacit.inference.service import ServiceTask
from tacit.jobs.bundle import bundle_for, find_client, write_bundle
from tacit.jobs.kinds import load_job, read_job
from tacit.jobs.toml import parse_toml, read_toml, write_toml

NAMES = ("north", "south", "helper", "ann", "ben")
JOB = """
[job]
name = "scores"
kind = "serve"
out = "/srv/results/scores"
[parties.north]
address = "10.0.0.1:7000"
[parties.south]
address = "10.0.0.2:7000"
[parties.helper]
address = "10.0.0.3:7000"
[clients.ann]
[clients.ben]
[model]
owner = "south"
{model}
[service]
columns = ["age", "income"]
[service.doors]
north = "10.0.0.1:7801"
south = "10.0.0.2:7802"
[protocol]
kind = "sealed"
dealer = "helper"
compute = ["north", "south"]
"""
FOREST = 'kind = "forest"\nfile = "/home/south/secret-model.json"'
LINEAR = 'train.file = "/home/south/people.csv"\ntrain.label = "late"\nbound = 77.25'
NETWORK = 'layers = ["dense 2"]\ninputs = [2]\nfile = "/home/south/secret-model.pt"'


@pytest.fixture(params=[FOREST, LINEAR, NETWORK], ids=["forest", "linear", "network"])
def job(request):
    return read_job(parse_toml(JOB.format(model=request.param), source="job"), source="job")


@pytest.fixture
def keys(tmp_path):
    for name in NAMES:
        make_identity(name, tmp_path / "keys")
    return tmp_path / "keys"


def test_a_bundle_has_what_its_client_needs_and_nothing_else(job, keys, tmp_path):
    path = tmp_path / "ann.zip"
    content = write_bundle(path, job, "ann", keys)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        (name,) = archive.namelist()
        text = archive.read(name).decode()
    private = [file.read_text() for file in keys.iterdir() if "PRIVATE" in file.read_text()]
    assert len(private) == len(NAMES)  # so the next line looks for something
    assert not any(line in text for key in private for line in key.splitlines()[1:-1])
    for word in (
        "ben",
        "secret",
        "people",
        "late",
        "77.25",
        "10.0.0.3",
        ":7000",
        "results",
        "file",
    ):
        assert word not in text, word
    told = read_toml(path)
    assert set(told["clients"]) == {"ann"}
    assert {name for name, entry in told["parties"].items() if "key" in entry} == {"north", "south"}
    assert told["service"]["columns"] == ["age", "income"]
    sizes = {"forest": (3, 2, 2, 2, 0), "logistic": (2,)}
    kind = job.model.kind or ("logistic" if job.model.is_linear else None)
    found, whole = (
        ServiceTask.of(one, name=one.job.name, clients=("ann",), told=sizes.get(kind, ()))
        for one in (load_job(path), job)
    )
    assert found.digest() == whole.digest()  # all that a client and the servers must agree on


def test_the_same_job_makes_the_same_bytes_whose_hash_can_be_told(job, keys):
    assert bundle_for(job, "ann", keys) == bundle_for(job, "ann", keys)
    assert bundle_for(job, "ann", keys) != bundle_for(job, "ben", keys)


def test_a_client_is_named_where_there_are_several(job):
    with pytest.raises(ConfigError, match="ann, ben: name one of them with --as"):
        find_client(job, None)
    with pytest.raises(ConfigError, match="no client 'cleo'"):
        find_client(job, "cleo")
    assert find_client(job, "ben") == "ben"


def test_a_missing_fingerprint_is_not_made_up(job, keys):
    for file in keys.glob("south*"):
        file.unlink()
    with pytest.raises(ConfigError, match="tacit keys south"):
        bundle_for(job, "ann", keys)


def test_code_of_a_model_is_not_handed_to_clients(keys):
    model = 'code = "net.py"\ninputs = [2]\nfile = "w.pt"'
    job = read_job(parse_toml(JOB.format(model=model), source="job"), source="job")
    with pytest.raises(ConfigError, match="a client would have to run it"):
        bundle_for(job, "ann", keys)


def archive(**files):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as made:
        for name, text in files.items():
            made.writestr(name.replace("_", "."), text)
    return content.getvalue()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (archive(service_toml="x = 1", key_pem="x"), "service.toml alone"),
        (archive(other_toml="x = 1"), "service.toml alone"),
        (archive(service_toml="#" + " " * (1 << 24)), "at most"),  # 16 KiB that stand for 16 MiB
        (archive(service_toml="x = 1")[:40], "not an archive"),
        (archive(service_toml="x = = 1"), "not TOML"),
    ],
)
def test_an_archive_of_anything_else_is_refused_and_nothing_is_unpacked(tmp_path, content, said):
    path = tmp_path / "given.zip"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        read_toml(path)
    assert [file.name for file in tmp_path.iterdir()] == ["given.zip"]


def test_what_a_bundle_says_is_read_as_a_job_file_is(job, keys, tmp_path):
    path = tmp_path / "ann.zip"
    write_bundle(path, job, "ann", keys)
    raw = read_toml(path)
    raw["service"]["columns"] = ["age", "age"]
    path.write_bytes(archive(service_toml=write_toml(raw)))
    with pytest.raises(ConfigError, match=r"service\.columns: wanted every name once"):
        load_job(path)
