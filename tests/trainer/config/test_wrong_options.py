"""Test that each wrong option, and each combination that is not supported, is reported in one line."""

import pytest

from trainer.train import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--bach-size 3", "unknown argument '--bach-size', did you mean --batch-size"),
        ("--batch 3", "unknown argument '--batch'"),
        ("lenet", "unknown argument 'lenet'"),
        (
            "--network inception",
            "unknown --network 'inception', must be one of: lenet, resnet20, resnet110, resnext110, resnet50, alexnet",
        ),
        ("--work_load_list=3,1", "--work_load_list=3,1 is not supported: every process takes an equal share of the b"),
        ("--data-train a.rec --data-val b.rec --dataset cifar10", "--data-train requires --dataset recordio, got "),
        ("--data-train a.rec --network resnet20", "--data-val must be given with --dataset recordio, such as FILE.rec"),
        (
            "--data-train s3://b --data-val b.rec --network resnet20",
            "--data-train must be a file or s3://BUCKET/KEY, got s3://b",
        ),
        ("--network resnet --num-layers 34", "unknown --network 'resnet34', must be one of: lenet, resnet20"),
        ("--network my-net:build", "unknown --network 'my-net:build', must be one of: lenet"),
        ("--network :build", "unknown --network ':build', must be one of: lenet"),
        ("--kv-store dist", "unknown --kv-store 'dist', must be one of: local, device, dist_sync, dist_device_sync"),
        (
            "--kv-store dist_async",
            "--kv-store dist_async is not supported by --framework torch, "
            "which supports device, local, dist_sync, dist_device_sync; "
            "use it with --framework mxnet\n",
        ),
        ("--kv-store horovod", "--kv-store horovod is not supported by --framework torch"),
        (
            "--framework horovod --kv-store dist_sync",
            "--kv-store dist_sync is not supported by --framework horovod, "
            "which supports horovod; use it with --framework torch or",
        ),
        ("--framework mxnet --kv-store nccl", "unknown --kv-store 'nccl', must be one of: local, device, dist_sync"),
        ("--framework tensorflow", "unknown --framework 'tensorflow', must be one of: torch, mxnet, horovod\n"),
        (
            "--framework mxnet --gpus 0,1",
            "--gpus requires --framework torch, as mxnet is MXNet's build for CPUs, got 0,1\n",
        ),
        ("--gpus 0,x", "--gpus must be numbers such as 0,1, got '0,x'"),
        ("--gpus 1,1", "--gpus must not repeat a number, got 1,1"),
        ("--benchmark yes", "--benchmark must be 0 or 1, got 'yes'"),
        (
            "--benchmark 1 --dataset mnist",
            "--benchmark 1 trains on generated images and cannot be combined with --dataset mnist",
        ),
        (
            "--dataset cifar",
            "unknown --dataset 'cifar', must be one of: digits, mnist, fashion-mnist, cifar10, fol",
        ),
        ("--dataset cifar10 --image-shape 3,28,28", "--image-shape of cifar10 must be 3,32,32, got 3,28,28"),
        ("--dataset cifar10 --network resnet50", "resnet50 takes images of at least 64x64, cifar10 has 32x32"),
        ("--dataset folder --network a:b", "--image-shape must be given for a:b with folder, such as 3,32,32"),
        (
            "--image-shape 32,32",
            "--image-shape must be channels, height and width such as 3,32,32, got '",
        ),
        ("--image-shape 0,32,32", "--image-shape must be three numbers of at least 1, got 0,32,32"),
        (
            "--dataset folder --image-shape 4,32,32",
            "--image-shape of folder must have 1 or 3 channels, got 4,32,32\n",
        ),
        ("--dataset mnist --num-classes 9", "--num-classes must be at least 10 with mnist, got 9"),
        (
            "--num-examples 9",
            "--num-examples must be at least 1 and is only for --dataset synthetic, got 9 with",
        ),
        ("--random-crop 2", "--random-crop must be 0 or 1, got '2'"),
        ("--augment all", "unknown --augment 'all', must be one of: auto, none, standard\n"),
        ("--augment none --random-crop 1", "--augment none stands for --random-crop and --random-mirror too, give"),
        ("--label-smoothing 1", "--label-smoothing must be at least 0 and below 1, got 1.0\n"),
        ("--lr-schedule linear", "unknown --lr-schedule 'linear', must be one of: step, cosine\n"),
        (
            "--lr-schedule cosine --lr-step-epochs 3",
            "--lr-step-epochs requires --lr-schedule step, got 3 with cosine\n",
        ),
        ("--reduction all", "unknown --reduction 'all', must be one of: auto, ddp, buckets, ring\n"),
        (
            "--reduction ddp --deterministic",
            "--reduction ddp cannot be combined with --deterministic, because DDP rebuilds its buckets",
        ),
        ("--batch-size 0", "--batch-size must be at least 1, got 0"),
        ("--batch-size many", "--batch-size must be a whole number of at least 1, got 'many'\n"),
        ("--batch-size", "--batch-size expected one argument"),
        ("--seed 1.5", "--seed must be a whole number of at least 0 and below 4294967296, got '1.5'\n"),
        ("--lr abc", "--lr must be a number above 0, got 'abc'\n"),
        ("--mom x", "--mom must be a number of at least 0 and below 1, got 'x'\n"),
        ("--model-prefix s3://bucket", "--model-prefix must be a path or s3://BUCKET/FOLDER/NAME, got s3://bucket\n"),
        ("--model-prefix runs/", "--model-prefix must end with a name, not with /, got runs/\n"),
        ("--metrics s3://a/b", "--metrics must be a path on rank 0's machine, got s3://a/b\n"),
        ("--tensorboard s3://a/b", "--tensorboard must be a path on rank 0's machine, got s3://a/b\n"),
        ("--num-epochs 0", "--num-epochs must be at least 1, got 0"),
        ("--disp-batches 0", "--disp-batches must be at least 1, got 0"),
        ("--seed -1", "--seed must be at least 0 and below 4294967296, got -1"),
        ("--profile-steps 3", "--profile-steps must be the first and the last step such as 10-12, got '3'"),
        ("--profile-steps 5-3", "--profile-steps must be the first and the last step, from 1, got 5-3"),
        ("--profile-steps 1-2 --framework mxnet", "--profile-steps requires --framework torch, got --framework mxnet"),
        ("--dtype half", "unknown --dtype 'half', must be one of: float32, bfloat16, float16"),
        ("--gc-type 2bit", "unknown --gc-type '2bit', must be one of: none, fp16, bf16"),
        ("--compile yes", "unknown --compile 'yes', must be one of: 0, 1, graphs, auto"),
        ("--fast on", "unknown --fast 'on', must be one of: off, auto"),
        ("--gradient-accumulation 0", "--gradient-accumulation must be at least 1, got 0"),
        ("--compile 1 --sync-bn", "--compile must be 0 with --sync-bn, whose sums torch.compile cannot see, got 1"),
        (
            "--compile graphs --deterministic",
            "--compile must be 0 with --deterministic, because compilation may choose other kernels, got gr",
        ),
        ("--deterministic --framework horovod", "--deterministic requires --framework torch, got --framework horovod"),
        ("--dtype bfloat16 --framework mxnet", "--dtype requires --framework torch, got --framework mxnet"),
        ("--gc-type fp16 --framework horovod", "--gc-type requires --framework torch, got --framework horovod"),
        ("--fast auto --framework mxnet", "--fast requires --framework torch, got --framework mxnet"),
        ("--lr 0", "--lr must be a number above 0, got 0.0"),
        ("--lr nan", "--lr must be a number above 0, got nan"),
        ("--lr-batch-size 256", "--lr-batch-size must be at least 1 and requires --lr, got 256 and none"),
        ("--warmup-epochs -1", "--warmup-epochs must be a number of at least 0, got -1.0"),
        ("--lr-factor 1.5", "--lr-factor must be above 0 and at most 1, got 1.5"),
        ("--lr-step-epochs 60,30", "--lr-step-epochs must be increasing and at least 1, got 60,30"),
        ("--lr-step-epochs 30;60", "--lr-step-epochs must be numbers such as 30,60, got '30;60'"),
        ("--mom 1", "--mom must be at least 0 and below 1, got 1.0"),
        ("--wd -1", "--wd must be a number of at least 0, got -1.0"),
    ],
)
def test_wrong_option_is_reported(capsys: pytest.CaptureFixture[str], arguments: str, message: str) -> None:
    assert main(arguments.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"trainer: {message}")
    assert captured.err.count("\n") == 1
