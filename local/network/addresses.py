r"""Define the addresses of the local AWS: all inside network namespaces that it makes itself.

user's machine (203.0.113.0/24, TEST-NET-3) --- internet --- router of a VPC --- its nodes
                                                        \--- router of another VPC --- its nodes

The internet knows public addresses only, so that the same private ones may be in several VPCs.
"""

from ipaddress import IPv4Network
from typing import Final

INTERNET: Final = "internet"
"""Network namespace between the user's machine, AWS's API and the VPCs. Each VPC's router is a namespace named after
it: every packet of a node passes it, for routing, security groups, NAT and instance metadata."""
USER_ADDRESS: Final = "203.0.113.2"
"""Address of the user's machine on the internet."""
PROVIDER_ADDRESS: Final = "203.0.113.1"
"""Address of the internet for the user's machine."""
BACKBONE_ADDRESS: Final = "192.0.2.1"
"""Address of the internet for each VPC's gateway (TEST-NET-1)."""
GATEWAY_ADDRESS: Final = "192.0.2.2"
"""Address of each VPC's internet gateway on the internet: all have the same, each on its own link."""
GATEWAY_INTERFACE: Final = "igw"
ENDPOINT_SOURCES: Final = IPv4Network("192.0.2.128/25")
"""Addresses at which AWS's API sees nodes that reach it through their VPC's endpoints alone, one for each VPC."""
API_ADDRESS: Final = "198.51.100.10"
"""Address where nodes reach AWS's API: beyond the internet gateway, as on AWS."""
API_PORT: Final = 5000
ENDPOINT: Final = f"http://{API_ADDRESS}:{API_PORT}"
USER_ENDPOINT: Final = f"http://localhost:{API_PORT}"
"""Address where the user's own AWS clients reach it; S3 template URLs need a host name with "localhost"."""
METADATA_ADDRESS: Final = "169.254.169.254"
NAME_SERVER_ADDRESS: Final = "169.254.169.253"
"""AWS's name server in every VPC ("DNS attributes for your VPC", Amazon VPC User Guide)."""
NODE_INTERFACE: Final = "ens5"
"""First network interface of a Nitro instance."""
DOCKER_ADDRESS: Final = "172.17.0.1/16"
"""Address of docker0 on every Deep Learning AMI; software must not mistake it for the network."""
