"""Test the commands that dlcluster run refuses or notes before anything starts."""

from pathlib import Path

import pytest

from cli.errors import EXIT_USAGE
from cli.main import main
from tests.cli.jobs.master import Master, record, set_job_answers
from tests.cli.moto_cluster import error_line


def test_job_name_is_checked_before_sending(master: Master, capfd: pytest.CaptureFixture[str]) -> None:
    set_job_answers(master, end=record())
    assert main(["run", "--detach", "--name", "baseline-2", "--", "x"]) == 0
    assert any("launch --detach --sync-dst-dir my-job --name baseline-2 -- x" in line for line in master.ran)
    master.ran.clear()
    capfd.readouterr()
    assert main(["run", "--name", "7b", "--", "x"]) == EXIT_USAGE
    form = "a letter, then at most 39 letters, digits, dots, hyphens and underscores"
    assert (master.ran, capfd.readouterr().err) == ([], f"dlcluster: --name must be {form}, got '7b'\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["srun", "-N", "2", "train.py"],
            "no srun here: options go before the command, as in: dlcluster run -n 2 -- train.py",
        ),
        (
            ["srun", "-N3", "hostname", "-f"],
            "no srun here: options go before the command, as in: dlcluster run -n 3 -- hostname -f",
        ),
        (
            ["sky", "launch", "task.yaml"],
            "no sky here: options go before the command, as in: dlcluster run -n 2 -- train.py",
        ),
        (["a.yaml"], "there are no task files, got 'a.yaml': name the command, as in: dlcluster run -- train.py"),
        (["a b.ipynb", "x"], "a notebook is not a script: jupyter nbconvert --to script 'a b.ipynb' makes one"),
        (["python3", "a.ipynb"], "a notebook is not a script: jupyter nbconvert --to script a.ipynb makes one"),
        (["job.sh"], "no program 'job.sh': write dlcluster run -- bash job.sh"),
        (
            ["deepspeed", "--num_gpus", "8", "train.py", "--lr", "0.1"],
            "no deepspeed here: dlcluster run starts a process for each GPU itself, as in: "
            "dlcluster run -- train.py --lr 0.1",
        ),
        (
            ["/usr/bin/mpirun", "-np", "4", "python", "train.py"],
            "no mpirun here: dlcluster run starts a process for each GPU itself, as in: "
            "dlcluster run -- python train.py; for Horovod: dlcluster push, then dlcluster run -- launch "
            "--launcher mpi ...",
        ),
    ],
)
def test_slurm_command_task_file_or_missing_script_is_refused(
    master: Master, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("job.sh").touch()
    assert main(["run", "--", *words]) == EXIT_USAGE
    assert (error_line(capsys), master.ran) == (message, [])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["demo", "task.yaml"], "demo is a cluster, and there are no task files: use --cluster, as in: {}train.py"),
        (["demo", "--", "train.py", "--lr", "1"], "demo is a cluster: use --cluster, as in: {}train.py --lr 1"),
        (["demo", "nvidia-smi"], "demo is a cluster: use --cluster, as in: {}nvidia-smi"),
    ],
)
def test_clusters_name_in_place_of_a_program_is_refused_before_anything_is_sent(
    master: Master, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    set_job_answers(master, end=record())
    assert main(["run", *words]) == EXIT_USAGE
    assert error_line(capsys) == message.format("dlcluster run --cluster demo -- ")
    assert not any("launch" in line for line in master.ran)


@pytest.mark.parametrize("words", [["-n", "1", "deepspeed", "train.py"], ["accelerate", "test"], ["torchrun", "t.py"]])
def test_launcher_decides_about_other_starters(master: Master, words: list[str]) -> None:
    set_job_answers(master, end=record())
    assert main(["run", "--detach", *words]) == 0


def test_launcher_decides_about_starters_on_a_cluster_of_one_node(master: Master) -> None:
    master.nodes = 1
    set_job_answers(master, end=record())
    assert main(["run", "--detach", "deepspeed", "train.py"]) == 0


def test_script_outside_of_the_directory_is_refused(master: Master, capsys: pytest.CaptureFixture[str]) -> None:
    here = Path.cwd()
    for words in (["../other/t.py"], ["python", "-u", "sub/../../t.py"]):
        assert main(["run", "--", *words]) == EXIT_USAGE
        fix = "run dlcluster in the script's own directory"
        assert error_line(capsys) == f"{words[-1]!r} is outside of {here}, which is sent: {fix}"
    assert master.ran == []


@pytest.mark.parametrize(
    ("text", "words", "is_noted"),
    [
        ("import torch\n", ["train.py"], True),
        ("import torch\n", ["python", "train.py"], True),
        ("import torch\n", ["-n", "1", "train.py"], False),
        ("import torch\n", ["bash", "train.py"], False),
        ("import torch.distributed as dist\n", ["train.py"], False),
        ("from accelerate import Accelerator\n", ["train.py"], False),
        ('rank = os.environ["RANK"]\n', ["train.py"], False),
    ],
)
def test_independent_processes_are_noted(
    master: Master, capsys: pytest.CaptureFixture[str], text: str, words: list[str], is_noted: bool
) -> None:
    set_job_answers(master, end=record())
    Path("train.py").write_text(text)
    assert main(["run", "--detach", *words]) == 0
    note = "dlcluster: note: 3 nodes run train.py, which does not mention torch.distributed: unless what it "
    assert (note in capsys.readouterr().err) == is_noted


def test_note_does_not_count_a_master_that_does_not_train(master: Master, capsys: pytest.CaptureFixture[str]) -> None:
    master.master_trains = False
    set_job_answers(master, end=record())
    Path("train.py").write_text("import torch\n")
    assert main(["run", "--detach", "train.py"]) == 0
    assert "dlcluster: note: 2 nodes run train.py" in capsys.readouterr().err


def test_option_to_without_sync_is_refused(master: Master, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--no-sync", "--to", "x", "--", "true"]) == EXIT_USAGE
    assert error_line(capsys) == "--to cannot be combined with --no-sync, which sends nothing"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trian.py"], "'trian.py': did you mean train.py?"),
        (["python", "-u", "trian.py", "--lr", "1"], "'trian.py': did you mean train.py?"),
        (["bash", "-eux", "rum.sh"], "'rum.sh': did you mean run.sh?"),
        (["/bin/sh", "sub/other.sh"], "'sub/other.sh'"),
    ],
)
def test_missing_script_is_reported_before_anything_runs(
    master: Master, tmp_path: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("run.sh").touch()
    assert main(["run", "--", *words]) == EXIT_USAGE
    assert (error_line(capsys), master.ran) == (f"{tmp_path} has no {message}", [])


@pytest.mark.parametrize(
    "words",
    [["bash", "run.sh"], ["bash", "-c", "x.sh"], ["bash", "/opt/x.sh"], ["bash", "x"], ["cd src && python train.py"]],
)
def test_script_that_exists_or_that_the_nodes_may_have_is_sent(master: Master, words: list[str]) -> None:
    set_job_answers(master, end=record())
    Path("run.sh").touch()
    assert main(["run", "--detach", *words]) == 0


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("#!/bin/bash\nmodule load cuda\n  srun python train.py\nsrun true\n", "module and srun"),
        ("exec sbatch next.sh\n", "sbatch"),
        ("# srun is Slurm's\ncommand -v srun\npython -m module x\n", ""),
    ],
)
def test_commands_of_slurm_in_a_script_are_noted(
    master: Master, capsys: pytest.CaptureFixture[str], text: str, names: str
) -> None:
    set_job_answers(master, end=record())
    Path("job.sh").write_text(text)
    assert main(["run", "--detach", "--", "bash", "job.sh"]) == 0
    printed = capsys.readouterr().err
    advice = "not needed here: every process runs the script (docs/from-slurm.md)"
    assert (f"dlcluster: note: job.sh calls {names}, {advice}\n" in printed) == bool(names)
    assert ("dlcluster: note: job.sh" in printed) == bool(names)


SLURM = "; its #SBATCH lines have no effect, docs/from-slurm.md says what replaces them"


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        (
            "#!/bin/bash -l\n#SBATCH -N 2\nsrun train.py\n",
            ["./job.sbatch", "a b"],
            f"'./job.sbatch' is not executable: write dlcluster run -- bash -l ./job.sbatch 'a b'{SLURM}",
        ),
        (
            "#SBATCH -N 2\n",
            ["job.sbatch"],
            f"no program 'job.sbatch': write dlcluster run -- bash job.sbatch{SLURM}",
        ),
        (
            "#!/usr/bin/env -S python3 -u\n",
            ["./job.sbatch"],
            "'./job.sbatch' is not executable: write dlcluster run -- python3 -u ./job.sbatch",
        ),
    ],
)
def test_script_that_the_nodes_cannot_run_is_refused_with_its_interpreter(
    master: Master, text: str, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("job.sbatch").write_text(text)
    assert main(["run", "--", *words]) == EXIT_USAGE
    assert (error_line(capsys), master.ran) == (message, [])


def test_executable_script_and_a_program_of_the_nodes_are_sent(master: Master) -> None:
    set_job_answers(master, end=record())
    Path("train").write_text("#!/bin/bash\n")
    assert main(["run", "--detach", "train"]) == 0
    Path("train").chmod(0o755)
    assert main(["run", "--detach", "./train"]) == 0
