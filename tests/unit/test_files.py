import threading

import numpy as np
import pytest

from tacit.files import open_arrays


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "some.npz"
    np.savez(path, one=np.arange(3))
    return path


def read(path, seen):
    with open_arrays(path) as arrays:
        seen.append(arrays["one"].tolist())


def test_a_second_thread_waits_until_the_first_has_closed_its_file(file):
    seen = []
    other = threading.Thread(target=read, args=(file, seen))
    with open_arrays(file) as arrays:
        other.start()
        other.join(0.3)
        assert seen == []
        assert arrays["one"].tolist() == [0, 1, 2]
    other.join()
    assert seen == [[0, 1, 2]]


def test_an_array_without_a_name_is_refused_and_others_can_read_on(file, tmp_path):
    np.save(tmp_path / "one.npy", np.arange(3))
    with pytest.raises(ValueError, match="without a name"), open_arrays(tmp_path / "one.npy"):
        pass
    with open_arrays(file) as arrays:
        assert arrays.files == ["one"]


def test_what_is_no_npz_file_is_refused_without_advice_to_run_its_code(tmp_path):
    path = tmp_path / "weights.npz"
    path.write_bytes(b"not a zip of arrays")
    with pytest.raises(ValueError, match="no npz file") as caught, open_arrays(path):
        pass
    assert "pickle" not in str(caught.value)
