"""Test that every format of CIFAR-10 is read, and that damaged or hostile files are reported."""

import io
import pickle
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from trainer.data.cifar import TRAIN, VALIDATION, load_cifar10
from trainer.errors import TrainerError

Files = dict[str, bytes]
BINARY, PYTHON = "cifar-10-batches-bin", "cifar-10-batches-py"
NAMES = (*TRAIN, *VALIDATION)


def images(number: int) -> np.ndarray:
    """Create files of two images; all red values of the second one are the file's number."""
    values = np.zeros((2, 3072), np.uint8)
    values[1, :1024] = number
    return values


def binary(number: int) -> bytes:
    return b"".join(bytes([number]) + image.tobytes() for image in images(number))


def pickled(number: int) -> bytes:
    return pickle.dumps({b"data": images(number), b"labels": [number, number]}, protocol=3)


def pickled_by_python_2(number: int) -> bytes:
    """Pickle like the authors' files, with Python 2's strings and numpy's old module name."""

    def text(value: bytes) -> bytes:
        return b"T" + struct.pack("<i", len(value)) + value

    maker = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"
    kind = (
        b"cnumpy\ndtype\n"
        + text(b"u1")
        + b"K\x00K\x01\x87R(K\x03"
        + text(b"|")
        + b"NNN"
        + 2 * b"J\xff\xff\xff\xff"
        + b"K\x00tb"
    )
    array = maker + b"(K\x01K\x02M\x00\x0c\x86" + kind + b"\x89" + text(images(number).tobytes()) + b"tb"
    labels = b"](K%cK%ce" % (number, number)
    return b"\x80\x02}(" + text(b"data") + array + text(b"labels") + labels + b"u."


def unpacked(directory: Path, files: Files) -> None:
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def packed(directory: Path, files: Files) -> None:
    with tarfile.open(directory / ARCHIVES[next(iter(files)).split("/")[0]], "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


ARCHIVES = {BINARY: "cifar-10-binary.tar.gz", PYTHON: "cifar-10-python.tar.gz"}
VERSIONS = {
    "binary": (BINARY, ".bin", binary),
    "python": (PYTHON, "", pickled),
    "python 2": (PYTHON, "", pickled_by_python_2),
}


def files(version: str) -> Files:
    folder, suffix, content = VERSIONS[version]
    return {f"{folder}/{name}{suffix}": content(number) for number, name in enumerate(NAMES)}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("write", [unpacked, packed])
def test_every_cifar_format_is_read(tmp_path: Path, version: str, write: Callable[[Path, Files], None]) -> None:
    write(tmp_path, files(version))
    data = load_cifar10(tmp_path)
    assert data.image_shape == (3, 32, 32)
    assert data.train.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert data.validation.labels.tolist() == [5, 5]
    pixels = data.train.read(np.array([7, 6]))
    assert pixels.shape == (2, 3, 32, 32)
    assert pixels.mean(axis=(2, 3)).tolist() == [[3, 0, 0], [0, 0, 0]]
    assert data.mean == (1, 0, 0)


def test_directory_of_the_files_is_accepted(tmp_path: Path) -> None:
    unpacked(tmp_path, files("binary"))
    assert len(load_cifar10(tmp_path / BINARY).train.labels) == 10


@pytest.mark.parametrize("version", VERSIONS)
def test_truncated_file_is_named(tmp_path: Path, version: str) -> None:
    content = files(version)
    path = list(content)[3]
    unpacked(tmp_path, content | {path: content[path][:-100]})
    with pytest.raises(TrainerError, match=f"{tmp_path / path} is (damaged or )?truncated, ") as caught:
        load_cifar10(tmp_path)
    assert "\n" not in str(caught.value)


def test_missing_file_is_reported(tmp_path: Path) -> None:
    unpacked(tmp_path, files("binary"))
    path = tmp_path / BINARY / "test_batch.bin"
    path.unlink()
    with pytest.raises(TrainerError, match=f"cannot read {path}: No such file"):
        load_cifar10(tmp_path)


@pytest.mark.parametrize("left", [0.5, 0.98])
def test_truncated_archive_is_named(tmp_path: Path, left: float) -> None:
    packed(tmp_path, files("binary"))
    path = tmp_path / ARCHIVES[BINARY]
    path.write_bytes(path.read_bytes()[: int(left * path.stat().st_size)])
    with pytest.raises(TrainerError, match=f"{path} is truncated"):
        load_cifar10(tmp_path)


def test_other_archive_is_reported(tmp_path: Path) -> None:
    packed(tmp_path, {f"{BINARY}/readme.html": b""})
    path = tmp_path / ARCHIVES[BINARY]
    message = f"{path} is damaged or not a CIFAR-10 archive: .*{BINARY}/data_batch_1.bin' not found"
    with pytest.raises(TrainerError, match=message):
        load_cifar10(tmp_path)


@pytest.mark.parametrize("folder", [BINARY, PYTHON])
def test_inaccessible_directory_is_reported(tmp_path: Path, folder: str) -> None:
    # Not Permission denied, which root never gets: stat() fails, so a file may exist or not.
    (tmp_path / folder).symlink_to("x" * 300)
    with pytest.raises(TrainerError, match=f"^cannot read {tmp_path / folder}/data_batch_1.*: File name too long$"):
        load_cifar10(tmp_path)


def test_missing_dataset_is_reported_with_its_source(tmp_path: Path) -> None:
    with pytest.raises(
        TrainerError, match=f"packed or unpacked, in {tmp_path}: get one from https://www.cs.toronto.edu/"
    ):
        load_cifar10(tmp_path)


class Attack:
    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return eval, ("open('/attacked', 'w')",)


@pytest.mark.parametrize("content", [Attack(), {b"data": Attack()}, {b"data": images(1), b"labels": Path("/")}])
def test_pickle_runs_no_code(tmp_path: Path, content: object) -> None:
    whole = files("python")
    unpacked(tmp_path, whole | {f"{PYTHON}/data_batch_2": pickle.dumps(content, protocol=3)})
    with pytest.raises(TrainerError, match=r"data_batch_2 contains .*; only arrays are allowed"):
        load_cifar10(tmp_path)
    assert not Path("/attacked").exists()


@pytest.mark.parametrize(
    "content",
    [{b"data": np.zeros((2, 3071), np.uint8), b"labels": [1, 2]}, {b"labels": [1]}, [1], {b"data": 1, b"labels": 1}],
)
def test_other_pickle_is_reported(tmp_path: Path, content: object) -> None:
    unpacked(tmp_path, files("python") | {f"{PYTHON}/data_batch_2": pickle.dumps(content, protocol=3)})
    with pytest.raises(TrainerError, match="data_batch_2 is damaged"):
        load_cifar10(tmp_path)
