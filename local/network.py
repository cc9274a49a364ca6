"""The addresses of the local AWS: all inside network namespaces that it makes itself.

user's machine --- internet (203.0.113.0/24, TEST-NET-3) --- router of the VPC --- nodes
"""

from typing import Final

ROUTER: Final = "vpc-router"
"""Network namespace that every packet of a node passes: routing, security groups, NAT, instance metadata."""
USER_ADDRESS: Final = "203.0.113.2"
"""The user's machine as the internet sees it."""
ROUTER_ADDRESS: Final = "203.0.113.1"
API_ADDRESS: Final = "198.51.100.10"
"""Where nodes find AWS's API: beyond the internet gateway, as on AWS."""
API_PORT: Final = 5000
ENDPOINT: Final = f"http://{API_ADDRESS}:{API_PORT}"
USER_ENDPOINT: Final = f"http://localhost:{API_PORT}"
"""Where the user's own AWS clients find it; the host name must contain "localhost" for S3 template URLs."""
METADATA_ADDRESS: Final = "169.254.169.254"
NODE_INTERFACE: Final = "ens5"
"""First network interface of a Nitro instance."""
DOCKER_ADDRESS: Final = "172.17.0.1/16"
"""Every Deep Learning AMI has a docker0 with this address: software must not mistake it for the network."""
