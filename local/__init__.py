"""The local AWS: a control plane and real nodes on this machine. Nothing outside it imports it."""
