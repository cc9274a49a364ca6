"""Test RecordIO files: written as by MXNet's im2rec, read, and damaged."""

import io
import re
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from trainer.config.command_line import parse
from trainer.data.batches import Augmentation, load_and_transform
from trainer.data.images.recordio_dataset import RecordPaths, load_recordio
from trainer.data.images.recordio_file import open_records
from trainer.data.images.recordio_format import MAGIC, pack_image, parse_record, write_record
from trainer.data.open_dataset import open_data
from trainer.errors import TrainerError
from trainer.im2rec.conversion import convert, main

COLORS = {"blue": (0, 0, 255), "red": (255, 0, 0)}
SHAPE = (3, 28, 28)


@pytest.fixture
def record_paths(tmp_path: Path) -> dict[str, Path]:
    """Convert folders with two classes of three images to two files."""
    for part in ("train", "val"):
        for name, color in COLORS.items():
            (tmp_path / part / name).mkdir(parents=True)
            for number in range(3):
                Image.new("RGB", (60 + number, 50), color).save(tmp_path / part / name / f"{number}.jpg", quality=95)
        convert(tmp_path / f"{part}.v1", tmp_path / part)
    return {part: tmp_path / f"{part}.v1.rec" for part in ("train", "val")}


@pytest.mark.parametrize("indexed", [True, False])
def test_training_reads_the_images_of_both_files(record_paths: dict[str, Path], indexed: bool) -> None:
    if not indexed:
        for path in record_paths.values():
            path.with_suffix(".idx").unlink()
    options = f"--data-train {record_paths['train']} --data-val {record_paths['val']} --image-shape 3,28,28"
    config = parse(options.split())
    assert config.augmentations == ("resized-crop", "mirror")
    data = open_data(config)
    assert (data.num_classes, len(data.train.labels), len(data.validation.labels)) == (2, 6, 6)
    images, labels = load_and_transform(
        data, data.train, np.arange(6), Augmentation.from_config(config).draw(epoch=0, samples=6)
    )
    mean, std = np.array(data.mean), np.array(data.std)
    for image, label in zip(images, labels, strict=True):
        assert np.allclose(image.mean(axis=(1, 2)) * std + mean, list(COLORS.values())[label], atol=6)


def test_record_is_split_as_by_dmlc_core() -> None:
    # src/recordio.cc: a magic number at a multiple of 4 splits the record, any other does not.
    record = b"abcd" + MAGIC + b"x" + MAGIC + b"yz"
    first = MAGIC + struct.pack("<I", 1 << 29 | 4) + b"abcd"
    last = MAGIC + struct.pack("<I", 3 << 29 | 7) + b"x" + MAGIC + b"yz\0"
    file = io.BytesIO()
    write_record(file, record)
    assert file.getvalue() == first + last
    assert parse_record(first + last, place="a.rec") == record


def test_split_records_are_found_and_read(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    # The second one's key is the magic number, which splits the header itself; the third has labels after the header.
    [key] = struct.unpack("<I", MAGIC)
    records = [
        pack_image(key=0, label=3, image=b"1234" + 2 * MAGIC),
        pack_image(key=key, label=4, image=MAGIC),
        struct.pack("<IfQQf", 1, 0, 7, 0, 5) + b"image",
    ]
    with path.open("wb") as file:
        for record in records:
            write_record(file, record)
    found = open_records(path)
    assert [found.record(number) for number in range(3)] == records
    assert found.labels().tolist() == [3, 4, 5]


def test_only_the_record_itself_is_read(record_paths: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    data = load_recordio(RecordPaths(str(record_paths["train"])), RecordPaths(str(record_paths["val"])), SHAPE)
    ranges = []

    def pread(descriptor: int, size: int, offset: int) -> bytes:
        ranges.append((offset, size))
        with record_paths["train"].open("rb") as file:
            file.seek(offset)
            return file.read(size)

    monkeypatch.setattr("os.pread", pread)
    data.train.read(np.array([2]))
    offsets = [int(line.split()[1]) for line in record_paths["train"].with_suffix(".idx").read_text().splitlines()]
    assert ranges == [(offsets[2], offsets[3] - offsets[2])]


def test_index_and_list_are_im2recs(record_paths: dict[str, Path]) -> None:
    lines = [line.split("\t") for line in record_paths["train"].with_suffix(".lst").read_text().splitlines()]
    # im2rec.py --list --recursive: random.seed(100), shuffle of six lines.
    assert [int(line[0]) for line in lines] == [2, 5, 0, 4, 3, 1]
    assert lines[0] == ["2", "0.000000", "blue/2.jpg"]
    index = record_paths["train"].with_suffix(".idx").read_text().splitlines()
    assert [line.split("\t")[0] for line in index] == [line[0] for line in lines]


def assert_damaged(path: Path, message: str) -> None:
    with pytest.raises(TrainerError, match=f"^{message}") as caught:
        load_recordio(RecordPaths(str(path)), RecordPaths(str(path)), SHAPE).train.read(np.arange(6))
    assert "\n" not in str(caught.value)


def test_damage_is_one_line_with_its_place(record_paths: dict[str, Path]) -> None:
    path = record_paths["train"]
    index, whole = path.with_suffix(".idx"), path.read_bytes()
    lines = index.read_text()
    size, name = len(whole), re.escape(str(path))
    assert_damaged(path.with_name("none.rec"), f"cannot read {path.parent}/none.rec: No such file or directory$")
    index.write_text(lines + f"9\t{size}\n")
    assert_damaged(path, f"{re.escape(str(index))} is not the index of {name}, byte {size} is after its end at {size}$")
    index.write_text("3 4 5\n")
    assert_damaged(path, rf"{re.escape(str(index))} is damaged, line 1 must be a key and an offset, got '3 4 5'$")
    index.write_text("3\t4\n")
    assert_damaged(path, f"{name} has no record at byte 4, .* is there instead of 0a23d7ce$")
    index.write_text(lines)
    path.write_bytes(whole[:-8])
    last = int(lines.splitlines()[-1].split()[1])
    assert_damaged(path, f"{name} is truncated or damaged, the record at byte {last} does not end where it should$")
    index.unlink()
    assert_damaged(path, f"{name} is truncated, its last record ends at byte {size}, the file at {size - 8}$")
    path.write_bytes(b"")
    assert_damaged(path, f"{name} holds no records$")


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (b"short", "the record at byte 0 of .* holds no image, 5 bytes are less than an image's header"),
        (struct.pack("<IfQQff", 2, 0, 0, 0, 1, 2), "the record at byte 0 of .* has 2 labels, the trainer classifies "),
        (struct.pack("<IfQQ", 0, 0.5, 0, 0), "the record at byte 0 of .* has the label 0.5, must be a whole number of"),
        (pack_image(key=0, label=0, image=b"no image"), "cannot read the image at byte 0 of .*: cannot identify image"),
    ],
)
def test_record_without_an_image_of_one_class_is_named(tmp_path: Path, record: bytes, message: str) -> None:
    with (tmp_path / "a.rec").open("wb") as file:
        write_record(file, record)
    paths = RecordPaths(str(tmp_path / "a.rec"))
    with pytest.raises(TrainerError, match=f"^{message}") as caught:
        load_recordio(paths, paths, SHAPE).train.read(np.array([0]))
    assert "0x" not in str(caught.value)


def test_converter_reports_a_missing_folder_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "a"), str(tmp_path / "none")]) == 1
    reason = "No such file or directory; it must have a folder for each class"
    assert capsys.readouterr().err == f"im2rec: cannot read {tmp_path}/none: {reason}\n"
    assert not list(tmp_path.iterdir())


def test_failed_conversion_leaves_no_file(tmp_path: Path) -> None:
    image = tmp_path / "folder/blue/a.jpg"
    image.parent.mkdir(parents=True)
    image.symlink_to("nowhere")
    with pytest.raises(TrainerError, match=f"^cannot read {image}: No such file or directory$"):
        convert(tmp_path / "a", tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
