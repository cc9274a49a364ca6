"""Stand in for the kernel's NFS client on a node: a file system that waits while its server does not answer."""
