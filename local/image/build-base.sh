#!/usr/bin/env bash
# build-base.sh ROOT ENDPOINT: build a Debian 12 root file system that stands in for the Ubuntu Deep Learning AMI:
# systemd, cloud-init with the EC2 data source, sshd, the AWS command line, the user "ubuntu".
# Its AWS clients reach AWS at ENDPOINT, which is part of the image so that user data stays as it is on AWS.
set -euo pipefail
# Write byte code beside its sources, even under make, which redirects it for its own programs: users of a node cannot
# write it, so every start of aws and every rank of every job would compile its modules again.
unset PYTHONPYCACHEPREFIX PYTHONDONTWRITEBYTECODE
root=$1 endpoint=$2
here=$(dirname "$(readlink -f "$0")")
packages=systemd,systemd-sysv,dbus,libpam-systemd,libnss-myhostname,openssh-server,openssh-client,sudo,cloud-init
packages+=,python3,rsync,iproute2,iputils-ping,curl,ca-certificates,procps,netcat-openbsd

# Use only Debian's own archive, as configured on this machine.
sources=/etc/apt/sources.list.d/debian.sources
[ -e $sources ] || sources=/etc/apt/sources.list

mmdebstrap --quiet --variant=minbase --include=$packages \
    --dpkgopt=force-unsafe-io --aptopt='Acquire::Languages "none"' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' bookworm "$root" "$sources"

pip install --quiet --quiet --disable-pip-version-check --target "$root/usr/local/lib/aws-cli" \
    --python-version 3.11 --only-binary=:all: --no-compile --cache-dir "${XDG_CACHE_HOME:-$HOME/.cache}/deeplearning-cdk/pip" -r "$here/aws-cli.txt"

# An image has no identity: every node makes its own host keys and machine id, and names come from AWS.
rm -f "$root"/etc/ssh/ssh_host_* "$root"/etc/hostname "$root"/usr/sbin/dhclient
: > "$root/etc/machine-id"
: > "$root/etc/resolv.conf"
echo '127.0.0.1 localhost' > "$root/etc/hosts"
cp -r "$here/rootfs/." "$root/"
chmod 755 "$root/usr/local/bin/aws"
sed -i "s|@ENDPOINT@|$endpoint|" "$root/etc/systemd/system.conf.d/10-local-aws.conf"
# Nodes share this machine's few cores, so one thread each. Torch would warn that they have no DNS server.
printf '%s\n' "AWS_ENDPOINT_URL=$endpoint" OMP_NUM_THREADS=1 TORCH_CPP_LOG_LEVEL=ERROR >> "$root/etc/environment"
chroot "$root" useradd --create-home --shell /bin/bash --groups adm,sudo ubuntu

# cloud-init recognizes EC2 by DMI tables, which a container lacks, and only then uses IMDSv2.
sed -i 's/^def identify_aws(data):/&\n    return CloudNames.AWS/' \
    "$root/usr/lib/python3/dist-packages/cloudinit/sources/DataSourceEc2.py"
echo 'policy: enabled' > "$root/etc/cloud/ds-identify.cfg"

for unit in apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer \
            dpkg-db-backup.timer getty@tty1.service console-getty.service systemd-pstore.service; do
    ln -sf /dev/null "$root/etc/systemd/system/$unit"
done
ln -s ../amazon-ssm-agent.service "$root/etc/systemd/system/multi-user.target.wants/amazon-ssm-agent.service"
# Some files are for other versions of Python and do not compile.
chroot "$root" python3 -m compileall -q /usr/local/lib/aws-cli /usr/lib/python3 >/dev/null || true
[ -d "$root/usr/local/lib/aws-cli/awscli/__pycache__" ]
