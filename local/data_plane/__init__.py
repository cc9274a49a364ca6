"""Data plane of the local AWS: keep containers, networks and firewalls as its control plane reports them."""
