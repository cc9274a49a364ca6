#!/usr/bin/env bash
# boot.sh NAME HOSTNAME DIR CGROUP LAYERS EXPORTS: boot one node, in its network namespace NAME, which exists: systemd in
# a container (systemd-nspawn) whose root is an overlay of its disk, mounted at DIR/disk, over the image LAYERS
# (colon-separated, uppermost first). EXPORTS has a directory for each file system of EFS and FSx; it is mounted where
# the node's mount helpers look for it.
# Runs until the node powers off (exit 0) or reboots (exit 133).
set -euo pipefail
export NODE=$1 NODE_HOSTNAME=$2 DIR=$3 CGROUP=$4 LAYERS=$5 EXPORTS=$6

# A cgroup of its own first: cgroup.kill is the node's power switch, cgroup.freeze hangs it.
mkdir -p "$CGROUP"
echo $$ > "$CGROUP/cgroup.procs"
mkdir -p "$DIR/root"

# shellcheck disable=SC2016  # expanded in the node's own mount namespace
exec ip netns exec "$NODE" unshare --mount --propagation private bash -euc '
    mount -t overlay overlay -o "lowerdir=$LAYERS,upperdir=$DIR/disk/upper,workdir=$DIR/disk/work" "$DIR/root"
    # Make nspawn see a pure cgroup v2 hierarchy, even on a hybrid machine.
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    mount -t tmpfs tmpfs /run
    export SYSTEMD_NSPAWN_API_VFS_WRITABLE=network
    exec systemd-nspawn --quiet --boot --register=no --keep-unit --machine="$NODE" --hostname="$NODE_HOSTNAME" \
        --directory="$DIR/root" --capability=CAP_NET_ADMIN --console=pipe --link-journal=no --resolv-conf=off \
        --timezone=off --kill-signal=SIGRTMIN+3 --bind="$EXPORTS:/var/lib/local-aws/file-systems"
'
