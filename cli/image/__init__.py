"""Make an image of a worker: its cleaning, and the image and its snapshots in EC2."""
