"""Train GPT-2 (124 million weights) on files of tokens, on any number of GPUs and nodes; one file, made to be changed.

torchrun --nproc-per-node 8 gpt2.py --data data             one machine
launch --max-restarts 5 gpt2.py --data data                 every node of the cluster, a process for each GPU
launch --max-restarts 5 gpt2.py --data data --fsdp          weights and AdamW's state are split over all GPUs

--data is a directory with train.bin and, if you like, val.bin, on every node. They hold token numbers as uint16 and
nothing else, as the files of nanoGPT's prepare.py do. With tiktoken, this makes one of your own text:

    np.array(tiktoken.get_encoding("gpt2").encode_ordinary(text), dtype=np.uint16).tofile("data/train.bin")

A step's sequences depend only on --seed, --total-batch and the step's number, so a restarted run draws the same batches
on fewer nodes too. --out keeps the newest two checkpoints. If all nodes share that directory, one process writes them.
Otherwise one process of each node does, and a node that has none (a replacement) gets the weights from another. With
--fsdp each process saves its part of the weights, so several nodes need a shared directory.
"""

import argparse
import math
import os
import shutil
import signal
import sys
import time
import uuid
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

VOCABULARY = 50304  # GPT-2's 50,257, rounded up to a multiple of 64, which matrix units like
KEPT_CHECKPOINTS = 2
# Peak bfloat16 speed without sparsity, in 10^12 operations a second, from NVIDIA's datasheets; the first match counts.
PEAK_TFLOPS = {"A100": 312, "A10G": 70, "L40S": 362, "L4": 121, "H100": 989, "H200": 989, "B200": 2250}


class Block(nn.Module):
    """Attends to earlier tokens, then transforms each token separately."""

    def __init__(self, width, heads, layers):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.attention_out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        for linear in (self.qkv, self.attention_out, self.up, self.down):
            # GPT-2 scales its additions to the residual stream down by their number.
            scale = 1 if linear in (self.qkv, self.up) else 1 / math.sqrt(2 * layers)
            nn.init.normal_(linear.weight, std=0.02 * scale)
            nn.init.zeros_(linear.bias)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attention_out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    """Predicts each token from those before it, with GPT-2's layers."""

    def __init__(self, layers, heads, width, length, vocabulary):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, layers) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.02)

    def forward(self, inputs, targets):
        """Return the sum of the losses of all tokens."""
        x = self.tokens(inputs) + self.positions(torch.arange(inputs.shape[1], device=inputs.device))
        for block in self.blocks:
            x = block(x)
        logits = functional.linear(self.norm(x), self.tokens.weight)  # the same matrix as the embedding
        return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="sum")


class Tokens:
    """Draws sequences from a file of tokens."""

    def __init__(self, path, length, vocabulary):
        if not path.is_file():
            sys.exit(f"gpt2.py: no such file: {path} (how to make one: the first lines of gpt2.py)")
        if path.stat().st_size % 2 or path.stat().st_size < 2 * (length + 1):
            needed = f"at least {length + 1} uint16 tokens, 2 bytes each"
            sys.exit(f"gpt2.py: {path} must have {needed}, got {path.stat().st_size} bytes")
        self.path, self.length, self.vocabulary = path, length, vocabulary
        self.data = np.memmap(path, dtype=np.uint16, mode="r")

    def starts(self, count, *seed):
        return np.random.default_rng(seed).integers(len(self.data) - self.length, size=count)

    def batch(self, starts, device):
        rows = np.stack([self.data[start : start + self.length + 1] for start in starts]).astype(np.int64)
        if rows.max() >= self.vocabulary:
            sys.exit(f"gpt2.py: {self.path} has the token {rows.max()}, --vocabulary has {self.vocabulary}")
        rows = torch.from_numpy(rows)
        if device.type == "cuda":
            rows = rows.pin_memory().to(device, non_blocking=True)
        return rows[:, :-1], rows[:, 1:]


def gather(value):
    """Return the values of all processes."""
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


class Checkpoints:
    """Keeps the newest checkpoints in a directory: files of DistributedDataParallel, directories of FSDP."""

    def __init__(self, out, shape, fsdp):
        self.out, self.shape, self.fsdp, self.saving = out, shape, fsdp, None
        self.suffix = "" if fsdp else ".pt"
        out.mkdir(parents=True, exist_ok=True)
        # If every process sees a file of rank 0, all nodes share the directory.
        name = f".{uuid.uuid4().hex}"
        if dist.get_rank() == 0:
            (out / name).touch()
        marker = out / gather(name)[0]
        is_shared = all(gather(marker.exists()))
        if dist.get_rank() == 0:
            marker.unlink()
        if fsdp and not is_shared:
            sys.exit(f"gpt2.py: --fsdp on several nodes needs a directory in --out that they share, got {out}")
        self.writes = dist.get_rank() == 0 if is_shared else int(os.environ.get("LOCAL_RANK", "0")) == 0
        # The saves run in parallel with the training, so they need their own group.
        self.group = dist.new_group(backend="gloo") if fsdp else None

    def path(self, step):
        return self.out / f"step-{step:08}{self.suffix}"

    def found(self):
        """Return this node's checkpoints by step, and whether each is complete; DCP writes .metadata last."""
        paths = self.out.glob(f"step-*[0-9]{self.suffix}")
        return {int(path.stem[5:]): not self.fsdp or (path / ".metadata").exists() for path in paths}

    def save(self, step, model, optimizer):
        weights, moments = get_state_dict(model, optimizer)
        state = {"step": step, "shape": self.shape, "model": weights, "optimizer": moments}
        if self.fsdp:
            self.finish()
            self.saving = dcp.async_save(state, checkpoint_id=self.path(step), process_group=self.group)
        elif self.writes:
            # A kill at any moment leaves the previous file.
            with (self.out / ".saving").open("wb") as file:
                torch.save(state, file)
                os.fsync(file.fileno())
            (self.out / ".saving").replace(self.path(step))
            self.prune()

    def finish(self):
        """Wait for a save in progress."""
        if self.saving is not None:
            self.saving.result()
            self.saving = None
            self.prune()

    def prune(self):
        """Delete what is older than the newest checkpoints, including directories that a kill left incomplete."""
        found = self.found()
        kept = sorted(step for step, is_complete in found.items() if is_complete)[-KEPT_CHECKPOINTS:]
        for step in found if self.writes else ():
            if step < kept[0]:
                shutil.rmtree(self.path(step)) if self.fsdp else self.path(step).unlink()

    def load(self, model, optimizer):
        """Load the newest checkpoint that any node has; return the number of steps done."""
        newest = gather(max((step for step, is_complete in self.found().items() if is_complete), default=0))
        step = max(newest)
        if step == 0:
            return 0
        saved = {"shape": dict(self.shape)}
        if self.fsdp:
            dcp.load(saved, checkpoint_id=self.path(step))
        else:
            owner = newest.index(step)
            loaded = [torch.load(self.path(step), map_location="cpu") if dist.get_rank() == owner else None]
            dist.broadcast_object_list(loaded, src=owner)
            saved = loaded[0]
        if (shape := saved["shape"]) != self.shape:
            problem = f"is of another network: {shape}, this one has {self.shape}; choose another --out"
            sys.exit(f"gpt2.py: {self.path(step)} {problem}")
        if self.fsdp:
            weights, moments = get_state_dict(model, optimizer)
            saved = {"model": weights, "optimizer": moments}
            dcp.load(saved, checkpoint_id=self.path(step))
        restore(model, optimizer, saved)
        return step


def restore(model, optimizer, saved):
    decays = [group["weight_decay"] for group in optimizer.param_groups]
    set_state_dict(model, optimizer, model_state_dict=saved["model"], optim_state_dict=saved["optimizer"])
    for group, decay in zip(optimizer.param_groups, decays, strict=True):  # --weight-decay may have changed
        group["weight_decay"] = decay


class Pace:
    """Measures the seconds per step since the last call, without those of evaluation and saving."""

    def __init__(self, step):
        self.restart(step)

    def restart(self, step):
        self.began, self.step = time.perf_counter(), step

    def seconds(self, step):
        began, since = self.began, self.step
        self.restart(step)
        return (self.began - began) / (step - since)


class Trainer:
    """Trains the model on all processes."""

    def __init__(self, args, shape, device):
        self.args, self.device, self.gpt = args, device, GPT(**shape).to(device)
        on_gpu = device.type == "cuda"
        has_bfloat16 = on_gpu and torch.cuda.is_bf16_supported(including_emulation=False)
        self.dtype = torch.bfloat16 if has_bfloat16 else torch.float32
        self.weights = sum(p.numel() for p in self.gpt.parameters()) - self.gpt.positions.weight.numel()
        if args.compile:
            for block in self.gpt.blocks:
                block.compile()
        if args.fsdp:
            policy = MixedPrecisionPolicy(param_dtype=self.dtype, reduce_dtype=torch.float32)
            mesh = dist.init_device_mesh(device.type, (dist.get_world_size(),))
            for module in (*self.gpt.blocks, self.gpt):
                fully_shard(module, mesh=mesh, mp_policy=policy)
            self.model = self.gpt
        else:
            self.model = DistributedDataParallel(self.gpt, device_ids=[device.index] if on_gpu else None)
        matrices = [p for p in self.model.parameters() if p.dim() >= 2]
        vectors = [p for p in self.model.parameters() if p.dim() < 2]
        groups = [{"params": matrices, "weight_decay": args.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.95), fused=on_gpu)

    def loss(self, data, starts):
        with torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32 and not self.args.fsdp):
            return self.model(*data.batch(starts, self.device))

    def train_step(self, data, step):
        """Update the weights; return the sum of this process's losses, and the norm of the gradient."""
        args = self.args
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(step - 1, args)
        batches = micro_batches(data.starts(args.total_batch, args.seed, step), args.batch_size)
        total = torch.zeros((), device=self.device)
        for index, starts in enumerate(batches):
            # Sum the gradients over all processes once per step.
            is_last = index == len(batches) - 1
            if args.fsdp:
                self.model.set_requires_gradient_sync(is_last)
            else:
                self.model.require_backward_grad_sync = is_last
            loss = self.loss(data, starts)
            # Both kinds of model average over the processes; the sum counts each token once.
            (loss * dist.get_world_size() / (args.total_batch * args.length)).backward()
            total += loss.detach()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), args.clip or math.inf)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return total, norm

    @torch.no_grad()
    def validation_loss(self, data):
        self.model.eval()
        total = torch.zeros((), device=self.device)
        for starts in micro_batches(data.starts(self.args.eval_batch, self.args.seed), self.args.batch_size):
            total += self.loss(data, starts)
        self.model.train()
        dist.all_reduce(total)
        return total.item() / (self.args.eval_batch * self.args.length)

    def report(self, step, total, norm, pace):
        """Print a step's loss, and the speed since the last report."""
        args = self.args
        dist.all_reduce(total)
        tokens = args.total_batch * args.length
        loss, norm = total.item() / tokens, (norm.full_tensor() if args.fsdp else norm).item()
        speed = tokens / pace.seconds(step)
        # PaLM (Chowdhery et al., 2022), appendix B, as in nanoGPT: 6 for each weight, 12 T for each channel of a layer.
        flops = speed * (6 * self.weights + 12 * args.layers * args.width * args.length)
        peak = peak_flops(self.device, self.dtype)
        mfu = f"{flops / (peak * dist.get_world_size()):.1%}" if peak else "unknown"
        rate = learning_rate(step - 1, args)
        log(f"step {step} loss {loss:.6f} norm {norm:.3f} lr {rate:.2e} tokens/s {speed:.0f} MFU {mfu}")


def learning_rate(step, args):
    if step < args.warmup:
        return args.lr * (step + 1) / (args.warmup + 1)
    done = min(1, (step - args.warmup) / max(1, args.steps - args.warmup))
    return args.lr * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


def peak_flops(device, dtype):
    name = torch.cuda.get_device_name(device) if device.type == "cuda" and dtype == torch.bfloat16 else ""
    if "MIG" in name:  # a part of a GPU
        return None
    return next((tera * 1e12 for part, tera in PEAK_TFLOPS.items() if part in name), None)


def micro_batches(starts, batch_size, flag="a batch of"):
    """Split a step's sequences into this process's micro-batches; all processes have the same number of these."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    count = math.ceil(math.ceil(len(starts) / ranks) / batch_size)
    if len(starts) // ranks < count:
        problem = f"{len(starts)} sequences cannot be split over {ranks} processes, {batch_size} at once"
        sys.exit(f"gpt2.py: {flag} {problem}")
    return np.array_split(starts[rank::ranks], count)


def log(text):
    if dist.get_rank() == 0:
        print(text, flush=True)


def positive(text):
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, got {text}")
    return int(text)


def number(text):
    try:
        if 0 <= float(text) < math.inf:
            return float(text)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"must be a number of 0 or more, got {text}")


def options():
    parser = argparse.ArgumentParser(description="Train GPT-2 on files of tokens.")
    shared = os.environ.get("DEEPLEARNING_SHARED")
    parser.error = lambda text: parser.exit(2, f"gpt2.py: {text}\n")  # one line, without the usage
    add = parser.add_argument
    add("--data", type=Path, default=Path("data"), help="directory of train.bin and val.bin (%(default)s)")
    add("--out", type=Path, default=Path(shared, "gpt2") if shared else Path.home() / "gpt2-out",
        help="directory of the checkpoints ($DEEPLEARNING_SHARED/gpt2 if that is set, or else ~/gpt2-out)")  # fmt: skip
    add("--fsdp", action="store_true", help="split weights with FSDP2 instead of DistributedDataParallel")
    add("--compile", action="store_true", help="compile each block; needs a C++ compiler on the nodes")
    for name, default, text in [
        ("layers", 12, "blocks"), ("heads", 12, "attention heads of a block"), ("width", 768, "channels"),
        ("length", 1024, "tokens of a sequence"), ("vocabulary", VOCABULARY, "size of the vocabulary"),
        ("batch-size", 12, "sequences that a process computes at once"),
        ("total-batch", 512, "sequences of a step, over all processes; the rest is gradient accumulation"),
        ("steps", 600_000, "steps in all"), ("warmup", 2000, "steps in which the learning rate rises"),
        ("log-every", 10, "steps between two lines"), ("eval-every", 1000, "steps between two losses of val.bin"),
        ("eval-batch", 512, "sequences of val.bin for its loss"), ("save-every", 500, "steps between checkpoints"),
    ]:  # fmt: skip
        add(f"--{name}", type=positive, default=default, help=f"{text} (%(default)s)")
    add("--lr", type=number, default=6e-4, help="highest learning rate; it ends at a tenth (%(default)s)")
    add("--weight-decay", type=number, default=0.1, help="of matrices; vectors have none (%(default)s)")
    add("--clip", type=number, default=1.0, help="largest norm of the gradient; 0: any (%(default)s)")
    add("--seed", type=positive, default=1337, help="of weights and batches (%(default)s)")
    args = parser.parse_args()
    if args.width % args.heads:
        parser.error(f"--width must be a multiple of --heads, got {args.width} and {args.heads}")
    if "RANK" not in os.environ:
        parser.error("start it with launch or torchrun: the variable RANK is not set")
    return args


def connect(args, train, val):
    """Join the other processes, check that all have equal data and batches; return this process's device."""
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    # Flags and checkpoints use gloo, so that they never wait for the GPU.
    dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo")
    sizes = set(gather((len(train.data), val and len(val.data))))
    if len(sizes) > 1:
        sys.exit(f"gpt2.py: the nodes have different token files in {args.data}: lengths {sorted(sizes, key=str)}")
    # Refuse now, not at the first evaluation.
    for flag, count in (("--total-batch", args.total_batch), ("--eval-batch", args.eval_batch)):
        micro_batches(np.arange(count), args.batch_size, f"{flag}:")
    return device


def main():
    args = options()
    shape = {name: getattr(args, name) for name in ("layers", "heads", "width", "length", "vocabulary")}
    train = Tokens(args.data / "train.bin", args.length, args.vocabulary)
    val = Tokens(args.data / "val.bin", args.length, args.vocabulary) if (args.data / "val.bin").exists() else None
    device = connect(args, train, val)
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    trainer = Trainer(args, shape, device)
    checkpoints = Checkpoints(args.out, shape, args.fsdp)
    first = checkpoints.load(trainer.model, trainer.optimizer)
    method = "FSDP2" if args.fsdp else "DDP"
    log(f"{trainer.weights / 1e6:.1f} M weights, {dist.get_world_size()} processes, {trainer.dtype}, {method}")
    log(f"resuming after step {first} from {args.out}" if first else f"starting; checkpoints in {args.out}")

    # A leaving node, Ctrl-C in launch and a stopped job first send TERM, then leave time to save.
    stop = torch.zeros(1)
    signal.signal(signal.SIGTERM, lambda *_: stop.fill_(1))
    pace = Pace(first)
    for step in range(first + 1, args.steps + 1):
        total, norm = trainer.train_step(train, step)
        stop_on_any = stop.clone()
        dist.all_reduce(stop_on_any, op=dist.ReduceOp.MAX)
        is_end = step == args.steps or bool(stop_on_any)
        if step % args.log_every == 0 or is_end:
            trainer.report(step, total, norm, pace)
        evaluates = val and (step % args.eval_every == 0 or step == args.steps)
        saves = step % args.save_every == 0 or is_end
        if evaluates:
            log(f"step {step} validation loss {trainer.validation_loss(val):.6f}")
        if saves:
            checkpoints.save(step, trainer.model, trainer.optimizer)
        if evaluates or saves:  # tokens/s counts neither
            pace.restart(step)
        if is_end:
            break
    checkpoints.finish()
    is_stopped = first < args.steps and step < args.steps
    log(f"stopped by SIGTERM after step {step}, with a checkpoint" if is_stopped
        else f"done: {args.steps} steps, checkpoint in {args.out}")  # fmt: skip
    dist.destroy_process_group()
    if is_stopped:
        sys.exit(128 + signal.SIGTERM)  # 0 would tell launch that the run is complete


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(f"gpt2.py: {error}")
