"""Train with Hugging Face Accelerate, as written for ``accelerate launch``: launch accelerate_digits.py."""

import torch
from accelerate import Accelerator
from digits import accuracy, batches, network

# Without a GPU, Accelerate must be told to use the CPU; otherwise each process trains on its own.
accelerator = Accelerator(cpu=not torch.cuda.is_available())
torch.manual_seed(0)
model = network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.02 * accelerator.num_processes, momentum=0.9)
model, optimizer, loader = accelerator.prepare(model, optimizer, batches())
for _ in range(8):
    for images, labels in loader:
        optimizer.zero_grad()
        accelerator.backward(torch.nn.functional.cross_entropy(model(images), labels))
        optimizer.step()
result = accuracy(model, accelerator.device)
print(f"rank {accelerator.process_index}/{accelerator.num_processes} accuracy={result:.3f}", flush=True)
accelerator.end_training()
