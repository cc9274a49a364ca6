"""Train GPT-2 (124M parameters) on files of tokens, on any number of GPUs and nodes; one file, made to be changed.

torchrun --nproc-per-node 8 gpt2.py --data data             one machine
launch --max-restarts 5 gpt2.py --data data                 every node of the cluster, one process per GPU
launch --max-restarts 5 gpt2.py --data data --fsdp          weights and AdamW's state are split over all GPUs

--data is a directory with train.bin and, if you like, val.bin, on every node. They hold only token numbers as uint16,
as the files of nanoGPT's prepare.py do. With tiktoken, this makes one of your own text:

    np.array(tiktoken.get_encoding("gpt2").encode_ordinary(text), dtype=np.uint16).tofile("data/train.bin")

README.md says where the checkpoints are, and what a restarted run does.
"""

import argparse
import gc
import math
import os
import shutil
import signal
import sys
import time
import uuid
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

KEPT_CHECKPOINTS = 2
# Peak bfloat16 speed without sparsity, in 10^12 operations a second, from NVIDIA's datasheets; the first match counts.
PEAK_TFLOPS = {"A100": 312, "A10G": 70, "L40S": 362, "L4": 121, "H100": 989, "H200": 989, "B200": 2250}
# Options for the network's shape, in the order of GPT's arguments.
SHAPE = ("layers", "heads", "width", "length", "vocabulary")
# fmt: off
NUMBERS = {  # options, with their defaults
    "layers": (12, "transformer blocks"), "heads": (12, "attention heads in a block"),
    "width": (768, "size of an embedding"), "length": (1024, "tokens in a sequence"),
    "vocabulary": (50304, "different tokens"),  # 50,257 and some unused
    "batch-size": (12, "sequences that a process computes at once"), "seed": (1337, "of weights and batches"),
    "total-batch": (512, "sequences of a step, over all processes; the rest is gradient accumulation"),
    "steps": (600_000, "steps in all"), "warmup": (2000, "steps in which the learning rate rises"),
    "lr": (6e-4, "highest learning rate; it ends at a tenth"), "clip": (1.0, "largest norm of the gradient; 0: any"),
    "weight-decay": (0.1, "of matrices; vectors have none"), "log-every": (10, "steps between two lines"),
    "eval-every": (1000, "steps between two losses of val.bin"), "eval-batch": (512, "sequences for that loss"),
    "save-every": (500, "steps between checkpoints"),
}
# fmt: on


class GPT(nn.Module):
    """Predicts each token from those before it, with GPT-2's layers."""

    def __init__(self, n_layer, n_head, n_embd, block_size, vocab_size):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab_size, n_embd), nn.Embedding(block_size, n_embd)
        gelu = partial(functional.gelu, approximate="tanh")
        block = nn.TransformerEncoderLayer(n_embd, n_head, 4 * n_embd, 0.0, gelu, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, n_layer, nn.LayerNorm(n_embd), enable_nested_tensor=False)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                # GPT-2 scales its additions to the residual stream down by their number.
                is_residual_projection = name.endswith(("out_proj.weight", "linear2.weight"))
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * n_layer) if is_residual_projection else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    def forward(self, inputs, targets):
        """Return the sum of the losses of all tokens."""
        length, device = inputs.shape[1], inputs.device
        x = self.tokens(inputs) + self.positions(torch.arange(length, device=device))
        causal = nn.Transformer.generate_square_subsequent_mask(length, device=device)
        x = self.blocks(x, causal, is_causal=True)  # each token attends to those before it
        logits = functional.linear(x, self.tokens.weight)  # the same matrix as the embedding
        return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="sum")


class Tokens:
    """Draws sequences from a file of tokens."""

    def __init__(self, path, args):
        if not path.is_file():
            sys.exit(f"gpt2.py: no such file: {path} (how to make one: the first lines of gpt2.py)")
        self.path, self.block_size, self.vocab_size = path, args.length, args.vocabulary
        size, least = path.stat().st_size, args.length + 1
        if size % 2 or size < 2 * least:
            sys.exit(f"gpt2.py: {path} must have at least {least} uint16 tokens, 2 bytes each, got {size} bytes")
        self.data = np.memmap(path, dtype=np.uint16, mode="r")

    def starts(self, count, *seed):
        return np.random.default_rng(seed).integers(len(self.data) - self.block_size, size=count)

    def batch(self, starts, device):
        rows = np.stack([self.data[start : start + self.block_size + 1] for start in starts]).astype(np.int64)
        if rows.max() >= self.vocab_size:
            sys.exit(f"gpt2.py: {self.path} has the token {rows.max()}, --vocabulary has {self.vocab_size}")
        rows = torch.from_numpy(rows)
        if device.type == "cuda":
            rows = rows.pin_memory().to(device, non_blocking=True)
        return rows[:, :-1], rows[:, 1:]


class Checkpoints:
    """Writes checkpoints beside the training, and keeps the newest; networks of each shape have their own directory."""

    def __init__(self, args, model, optimizer):
        self.model, self.optimizer, self.fsdp, self.saving = model, optimizer, args.fsdp, None
        self.out = args.out / "-".join(f"{name}{getattr(args, name)}" for name in SHAPE)
        # If every process sees the file of rank 0, all nodes share the directory.
        marker = self.out / f".{uuid.uuid4().hex}"
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            marker.touch()
        except OSError as error:
            sys.exit(f"gpt2.py: cannot write to --out {args.out}: {error.strerror}")
        is_shared = all(gather((self.out / gather(marker.name)[0]).exists()))
        marker.unlink()
        if self.fsdp and not is_shared:
            sys.exit(f"gpt2.py: --fsdp on several nodes needs a directory in --out that they share, got {args.out}")
        self.is_first = dist.get_rank() == 0 if is_shared else int(os.environ.get("LOCAL_RANK", "0")) == 0
        # Saves run in parallel with the training, so they need their own group.
        self.group = dist.new_group(backend="gloo") if self.fsdp else None

    def complete(self):
        """Return this node's complete checkpoints, oldest first; DCP writes .metadata last."""
        return sorted(path.parent for path in self.out.glob("step-*/.metadata"))

    def state(self):
        # Without FSDP on the CPU, from where it is sent to nodes that have none.
        options = StateDictOptions(cpu_offload=not self.fsdp)
        weights, moments = get_state_dict(self.model, self.optimizer, options=options)
        return {"model": weights, "optimizer": moments}

    def save(self, step):
        self.finish()
        if self.fsdp or self.is_first:
            how = {"process_group": self.group, "no_dist": not self.fsdp}
            self.saving = dcp.async_save(self.state(), checkpoint_id=self.out / f"step-{step:08}", **how)

    def finish(self):
        """Wait for a save in progress; delete what is older than the newest, also what a kill left incomplete."""
        if self.saving is not None:
            self.saving.result()
            self.saving = None
            if self.is_first:
                oldest_kept = self.complete()[-KEPT_CHECKPOINTS:][0]
                for path in self.out.glob("step-*"):
                    if path < oldest_kept:
                        shutil.rmtree(path)

    def load(self):
        """Load the newest checkpoint that any node has; return the number of steps done."""
        steps = gather(max((int(path.name[5:]) for path in self.complete()), default=0))
        step, owner = max(steps), steps.index(max(steps))
        if step:
            saved = [self.state()]
            if self.fsdp or dist.get_rank() == owner:
                dcp.load(saved[0], checkpoint_id=self.out / f"step-{step:08}", no_dist=not self.fsdp)
            if not self.fsdp:
                dist.broadcast_object_list(saved, src=owner)
            weights, moments = saved[0]["model"], saved[0]["optimizer"]
            set_state_dict(self.model, self.optimizer, model_state_dict=weights, optim_state_dict=moments)
        return step


class Trainer:
    """Trains the model on all processes."""

    def __init__(self, args, device):
        self.args, self.device = args, device
        self.model = GPT(*(getattr(args, name) for name in SHAPE)).to(device)
        on_gpu = device.type == "cuda"
        has_bfloat16 = on_gpu and torch.cuda.is_bf16_supported(including_emulation=False)
        self.dtype = torch.bfloat16 if has_bfloat16 else torch.float32
        name = torch.cuda.get_device_name(device) if has_bfloat16 else ""
        known = () if "MIG" in name else PEAK_TFLOPS  # MIG: a part of a GPU
        self.peak = next((PEAK_TFLOPS[part] * 1e12 for part in known if part in name), None)
        self.num_params = sum(p.numel() for p in self.model.parameters()) - self.model.positions.weight.numel()
        if args.compile:
            for block in self.model.blocks.layers:
                block.compile()
        if args.fsdp:
            policy = MixedPrecisionPolicy(param_dtype=self.dtype, reduce_dtype=torch.float32)
            for module in (*self.model.blocks.layers, self.model):
                fully_shard(module, mp_policy=policy)
        else:
            self.model = DistributedDataParallel(self.model, device_ids=[device.index] if on_gpu else None)
        parameters = [*self.model.parameters()]
        groups = [{"params": [p for p in parameters if (p.dim() >= 2) is is_matrix]} for is_matrix in (True, False)]
        self.optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95), fused=on_gpu)

    def loss(self, data, starts):
        with torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32 and not self.args.fsdp):
            return self.model(*data.batch(starts, self.device))

    def train_step(self, data, step):
        """Update the weights; return the sum of this process's losses, and the norm of the gradient."""
        args = self.args
        set_rates(self.optimizer, step, args)
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
    def evaluate(self, data, step):
        """Print the loss of val.bin."""
        args, total = self.args, torch.zeros((), device=self.device)
        for starts in micro_batches(data.starts(args.eval_batch, args.seed), args.batch_size):
            total += self.loss(data, starts)
        dist.all_reduce(total)
        log(f"step {step} validation loss {total.item() / (args.eval_batch * args.length):.6f}")
        self.restart_clock(step)

    def restart_clock(self, step):
        """Count the time for tokens/s from here: without that of reports, evaluation and checkpoints."""
        self.clock_start, self.clock_step = time.perf_counter(), step

    def report(self, step, total, norm):
        """Print a step's loss, and the speed since the clock was restarted."""
        args = self.args
        dist.all_reduce(total)
        tokens = args.total_batch * args.length
        loss, norm = total.item() / tokens, (norm.full_tensor() if args.fsdp else norm).item()
        speed = tokens * (step - self.clock_step) / (time.perf_counter() - self.clock_start)
        # PaLM (Chowdhery et al. 2022), appendix B, as nanoGPT: 6 for each parameter, 12 T for each channel of a block.
        flops = speed * (6 * self.num_params + 12 * args.layers * args.width * args.length)
        mfu = f"{flops / (self.peak * dist.get_world_size()):.1%}" if self.peak else "unknown"
        rate = self.optimizer.param_groups[0]["lr"]
        log(f"step {step} loss {loss:.6f} norm {norm:.3f} lr {rate:.2e} tokens/s {speed:.0f} MFU {mfu}")
        self.restart_clock(step)


def set_rates(optimizer, step, args):
    """Set a step's learning rate, and this run's weight decay: a checkpoint may have another."""
    done = min(1, (step - 1 - args.warmup) / max(1, args.steps - args.warmup))
    rate = step / (args.warmup + 1) if done < 0 else 0.1 + 0.45 * (1 + math.cos(math.pi * done))
    for group, decay in zip(optimizer.param_groups, (args.weight_decay, 0.0), strict=True):
        group["lr"], group["weight_decay"] = args.lr * rate, decay


def micro_batches(starts, batch_size, flag="a batch of"):
    """Split a step's sequences into this process's micro-batches; all processes have the same number of these."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    count = math.ceil(math.ceil(len(starts) / ranks) / batch_size)
    if len(starts) // ranks < count:
        problem = f"{len(starts)} sequences cannot be split over {ranks} processes, {batch_size} at once"
        sys.exit(f"gpt2.py: {flag} {problem}")
    return np.array_split(starts[rank::ranks], count)


def gather(value):
    """Return the values of all processes."""
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def log(text):
    if dist.get_rank() == 0:
        print(text, flush=True)


def options():
    parser = argparse.ArgumentParser(description="Train GPT-2 on files of tokens.")
    parser.error = lambda text: parser.exit(2, f"gpt2.py: {text}\n")  # one line, without the usage
    shared = os.environ.get("DEEPLEARNING_SHARED")
    out = Path(shared, "gpt2") if shared else Path.home() / "gpt2-out"
    add = parser.add_argument
    add("--data", type=Path, default="data", help="directory of train.bin and val.bin (%(default)s)")
    add("--out", type=Path, default=out, help="directory of the checkpoints (%(default)s)")
    add("--fsdp", action="store_true", help="split weights with FSDP2 instead of DistributedDataParallel")
    add("--compile", action="store_true", help="compile each block; needs a C++ compiler on the nodes")
    for name, (default, text) in NUMBERS.items():
        add(f"--{name}", type=type(default), default=default, help=f"{text} (%(default)s)")
    args = parser.parse_args()
    for name, (default, _) in NUMBERS.items():
        value, least = vars(args)[name.replace("-", "_")], 1 if isinstance(default, int) else 0
        if not least <= value < math.inf:
            parser.error(f"--{name} must be a number of {least} or more, got {value}")
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
    if len(sizes := set(gather((len(train.data), val and len(val.data))))) > 1:
        sys.exit(f"gpt2.py: the nodes have different token files in {args.data}: lengths {sorted(sizes, key=str)}")
    for flag, count in (("--total-batch", args.total_batch), ("--eval-batch", args.eval_batch)):
        micro_batches(np.arange(count), args.batch_size, f"{flag}:")  # refuse now, not at the first evaluation
    return device


def run(args, train, val, device):
    """Train to the last step or SIGTERM; return True after SIGTERM."""
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    trainer = Trainer(args, device)
    checkpoints = Checkpoints(args, trainer.model, trainer.optimizer)
    first = checkpoints.load()
    log(f"{trainer.num_params / 1e6:.1f}M parameters, {dist.get_world_size()} processes, {trainer.dtype}")
    log(f"resuming after step {first} from {args.out}" if first else f"starting; checkpoints in {args.out}")

    # A leaving node, Ctrl-C in launch and a stopped job first send TERM, then leave time to save.
    stop = torch.zeros(1)
    signal.signal(signal.SIGTERM, lambda *_: stop.fill_(1))
    trainer.restart_clock(first)
    step, is_stopped = first, False
    while step < args.steps and not is_stopped:
        step += 1
        total, norm = trainer.train_step(train, step)
        stop_on_any = stop.clone()
        dist.all_reduce(stop_on_any, op=dist.ReduceOp.MAX)
        is_complete = step == args.steps
        is_stopped = bool(stop_on_any) and not is_complete
        if step % args.log_every == 0 or is_complete or is_stopped:
            trainer.report(step, total, norm)
        if val and (step % args.eval_every == 0 or is_complete):
            trainer.evaluate(val, step)
        if step % args.save_every == 0 or is_complete or is_stopped:
            checkpoints.save(step)
            trainer.restart_clock(step)
    checkpoints.finish()
    log(f"stopped by SIGTERM after step {step}, with a checkpoint" if is_stopped
        else f"done: {args.steps} steps, checkpoint in {args.out}")  # fmt: skip
    return is_stopped


def main():
    args = options()
    train = Tokens(args.data / "train.bin", args)
    val = Tokens(args.data / "val.bin", args) if (args.data / "val.bin").exists() else None
    device = connect(args, train, val)
    is_stopped = run(args, train, val, device)
    # Free run()'s DistributedDataParallel before its group, whose last owner joins gloo's threads while it holds the
    # GIL, which may hang. The first one that a process makes is in a reference cycle, so only the collector frees it.
    gc.collect()
    dist.destroy_process_group()
    if is_stopped:
        sys.exit(128 + signal.SIGTERM)  # 0 would tell launch that the run is complete


if __name__ == "__main__":
    main()
