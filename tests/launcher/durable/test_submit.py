"""Test what the bucket stores of a job, and when that is removed."""

import json
import tarfile
from collections.abc import Sequence
from pathlib import Path

import boto3
import pytest

from launcher.detached.request import DurableStart
from launcher.durable import archive, mirror
from launcher.durable import submit as submission
from launcher.durable.bucket import JobBucket, read_bucket_location
from launcher.durable.record import DurableRecord
from launcher.errors import LaunchError
from launcher.job_records.durable_state import is_open
from tests.launcher.durable.durable_jobs import LOCATION, Submit, durable_job


def keys() -> list[str]:
    found = boto3.client("s3", region_name=LOCATION.region).list_objects_v2(Bucket=LOCATION.bucket)
    return [item["Key"] for item in found.get("Contents", ())]


def project(home: Path) -> Path:
    source = home / "code"
    (source / "data").mkdir(parents=True)
    (source / "train.py").write_text("print(1)")
    (source / "train.py").chmod(0o755)
    (source / "data" / "large").write_text("x")
    (source / "link").symlink_to("train.py")
    (source / ".launchignore").write_text("data\n")
    return source


def test_new_master_reads_a_stored_job_completely(home: Path, bucket: JobBucket, submit: Submit) -> None:
    record = submit("--sync-dst-dir", "code", "--env", "LR:0.1", "train.py", cwd=project(home))
    assert keys() == [f"jobs/team/durable/{record.job.id}.json", f"jobs/team/files/{record.files}.tar.gz"]
    assert bucket.read_records() == ([record], [])
    assert record.arguments == ("--durable", "--sync-dst-dir", "code", "--env", "LR:0.1", "train.py")
    assert (record.job.cwd, record.job.attempt, record.job.durable) == (str(home / "code"), 1, True)
    assert record.files is not None
    bucket.fetch_files(record.files, home / "new")
    assert sorted(path.name for path in (home / "new").iterdir()) == [".launchignore", "link", "train.py"]
    assert (home / "new" / "train.py").stat().st_mode & 0o777 == 0o755
    assert (home / "new" / "link").readlink() == Path("train.py")


def test_equal_files_are_stored_once(home: Path, submit: Submit) -> None:
    source = project(home)
    first = submit("--sync-dst-dir", "code", "train.py", cwd=source)
    (source / "data" / "large").write_text("another, but it is excluded")
    assert submit("--sync-dst-dir", "code", "train.py", cwd=source).files == first.files
    assert len([key for key in keys() if "/files/" in key]) == 1


def test_too_large_files_are_refused_and_nothing_is_stored(
    home: Path, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MAX_SIZE", 2_000_000)
    source = project(home)
    (source / "set").write_bytes(bytes(3_000_000))
    with pytest.raises(LaunchError, match=r"keeps at most 2 MB of files, and .*/code has 3 MB: name data in .launchig"):
        submit("--sync-dst-dir", "code", "train.py", cwd=source)
    assert keys() == []


def test_stored_files_with_another_hash_are_refused(home: Path, bucket: JobBucket, submit: Submit) -> None:
    files = submit("--sync-dst-dir", "code", "train.py", cwd=project(home)).files
    assert files is not None
    client = boto3.client("s3", region_name=LOCATION.region)
    client.put_object(Bucket=LOCATION.bucket, Key=f"jobs/team/files/{files}.tar.gz", Body=b"other")
    with pytest.raises(LaunchError, match=f"must have SHA-256 {files}, got "):
        bucket.fetch_files(files, home / "new")
    assert not (home / "new").exists()


@pytest.mark.parametrize(("code", "stays"), [(0, True), (130, True), (1, False), (143, False)])
def test_job_that_does_not_start_is_not_kept(
    home: Path, bucket: JobBucket, monkeypatch: pytest.MonkeyPatch, *, code: int, stays: bool
) -> None:
    seen: list[str] = []

    def detach(arguments: Sequence[str], *, durable: DurableStart, **_: object) -> int:
        seen.append(durable.job_id)
        return code

    monkeypatch.setattr(submission, "detach", detach)
    job, arguments = durable_job("true", home=home)
    assert submission.submit(job, arguments, cwd=str(home), bucket=bucket) == code
    assert keys() == ([f"jobs/team/durable/{seen[0]}.json"] if stays else [])
    assert is_open(seen[0]) is stays


def test_ended_job_is_forgotten_everywhere(bucket: JobBucket, submit: Submit) -> None:
    record = submit("true")
    assert mirror.open_jobs() != []
    mirror.close_job(record.job.id, bucket)
    assert (keys(), mirror.open_jobs(), mirror.ended_jobs()) == ([], [], [])


def test_ended_job_does_not_restart_without_the_bucket(
    bucket: JobBucket, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = submit("true")

    def fail(job_id: str) -> None:
        raise LaunchError("no network")

    monkeypatch.setattr(bucket, "remove", fail)
    mirror.close_job(record.job.id, bucket)
    assert (mirror.open_jobs(), mirror.ended_jobs()) == ([], [record.job.id])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"version": 3}, "must have version 2, got 3"),
        ({"files": "../x"}, "must be named by a SHA-256, got '../x'"),
        ({"arguments": 1}, "not the record of a durable job"),
        ({"job": {"id": "../../.ssh"}}, "not the record of a durable job"),
    ],
)
def test_invalid_durable_record_is_rejected(submit: Submit, change: dict[str, object], reason: str) -> None:
    values = json.loads(submit("true").to_bytes()) | change
    with pytest.raises(LaunchError, match=reason):
        DurableRecord.from_bytes(json.dumps(values).encode())


def test_id_with_a_path_is_refused(submit: Submit) -> None:
    values = json.loads(submit("true").to_bytes())
    values["job"]["id"] = "../../.ssh"
    with pytest.raises(LaunchError, match=r"must have a job's id, got '../../.ssh'"):
        DurableRecord.from_bytes(json.dumps(values).encode())


@pytest.mark.parametrize("node_type", ["worker", None])
def test_only_a_master_has_durable_jobs(tmp_path: Path, node_type: str | None) -> None:
    config = tmp_path / "node.json"
    if node_type is not None:
        config.write_text(json.dumps({"node_type": node_type}))
    with pytest.raises(LaunchError, match="--durable requires a cluster's master: "):
        read_bucket_location(config)


def test_archive_that_leads_out_of_its_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name, target in (("../out", ""), ("link/out", str(tmp_path))):
        packed = tmp_path / "packed"
        with tarfile.open(packed, "w:gz") as tar:
            if target:
                link = tarfile.TarInfo("link")
                link.type, link.linkname = tarfile.SYMTYPE, target
                tar.addfile(link)
            tar.addfile(tarfile.TarInfo(name))
        with pytest.raises(LaunchError, match=f"must stay in its directory, got '{name}'"):
            archive.unpack(packed, tmp_path / "in" / "files", sha256=archive.sha256_of(packed))
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["in", "packed"]
