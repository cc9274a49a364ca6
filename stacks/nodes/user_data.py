"""Render the user data: the script with which an instance fetches the bundle and starts the agent.

It writes the node's configuration, fetches, verifies and unpacks the bundle, and installs the agent; the agent does the
rest. It signals a failure to CloudFormation immediately, so that a deploy does not wait for its timeout. Rendering only
joins strings, so values may be CDK tokens.
"""

import json
from dataclasses import asdict, dataclass
from typing import Final

from bootstrap import contract
from bootstrap.config import NodeConfig

FETCH_TIMEOUT_S: Final = 420
"""Seconds that a node waits for its route to S3 and its role, which may be created only after the node (a NAT gateway
takes minutes)."""

SIGNAL_TIMEOUT_S: Final = 600
"""Seconds for which a failed node tries to report its failure."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BundleSource:
    """Location of the node bundle, and its hash."""

    url: str
    sha256: str
    """Hash of the zip file, which is also the name of its release."""


SHEBANG: Final = "#!/bin/bash"


def body(config: NodeConfig, bundle: BundleSource) -> str:
    """Render the script without its first line."""
    return _BODY.format(
        region=config.region,
        stack_id=config.stack_id,
        signal_resource=config.signal_resource,
        config_file=contract.NODE_CONFIG_FILE,
        config=json.dumps(asdict(config), indent=2),
        url=bundle.url,
        hash=bundle.sha256,
        releases=contract.RELEASES_DIR,
        current=contract.CURRENT_RELEASE_LINK,
        fetch_timeout=FETCH_TIMEOUT_S,
        signal_timeout=SIGNAL_TIMEOUT_S,
        signal_length=contract.SIGNAL_ID_LENGTH,
        too_late=contract.SIGNAL_TOO_LATE,
        # A single failure signal fails the complete deploy, whatever the other nodes signal.
        signal_failure="true" if config.fails_deploy else "false",
    )


# bash's SECONDS measures every wait. cloud-init leaves HOME unset. Images with PyTorch have the AWS command line in
# PyTorch's environment, and only some of them also in the system.
_BODY: Final = """\
set -euo pipefail
export HOME=/root AWS_DEFAULT_REGION={region} PATH="$PATH:/opt/pytorch/bin"
metadata=http://169.254.169.254/latest
step='start' work='' instance=''

# Each return has an explicit value: within a trap, bash would return the status from before the trap.
# Signal the failure if the deploy needs this node; otherwise, or if the stack no longer waits, have it replaced.
report_failure() {{
  if {signal_failure}; then
    id="$instance user data: $step"
    answer=$(timeout 60 aws cloudformation signal-resource --stack-name {stack_id} --status FAILURE \\
      --logical-resource-id {signal_resource} --unique-id "${{id:0:{signal_length}}}" 2>&1) && return 0
    echo "$answer" >&2
    [[ $answer == *'{too_late}'* ]] || return 1
  fi
  timeout 60 aws autoscaling set-instance-health --instance-id "$instance" \\
    --health-status Unhealthy --no-should-respect-grace-period
}}

finish() {{
  status=$?
  rm -rf "$work"
  if ((status != 0)); then
    echo "user data failed: $step" >&2
    # Unlike S3, both services are reached through the NAT gateway, which may exist only after the node.
    until report_failure; do
      ((SECONDS < {signal_timeout})) || break
      sleep 5
    done
  fi
  exit "$status"
}}
trap finish EXIT

step='read instance metadata'
token=$(curl -sSf -m 5 --retry 5 --retry-connrefused -X PUT \\
  -H 'X-aws-ec2-metadata-token-ttl-seconds: 300' "$metadata/api/token")
instance=$(curl -sSf -m 5 --retry 5 -H "X-aws-ec2-metadata-token: $token" "$metadata/meta-data/instance-id")

step='write the node configuration'
install -d -m 0755 "$(dirname {config_file})" {releases}
cat > {config_file}.new <<'EOF'
{config}
EOF
chmod 0644 {config_file}.new
mv {config_file}.new {config_file}

step='fetch the node bundle'
work=$(mktemp -d {releases}/.new.XXXXXX)
until timeout 60 aws s3 cp --only-show-errors {url} "$work/bundle.zip"; do
  ((SECONDS < {fetch_timeout})) || exit 1
  echo "waiting for {url}: no route or no permission yet, $SECONDS s of {fetch_timeout} s" >&2
  sleep 3
done

step='verify the node bundle'
echo "{hash}  $work/bundle.zip" | sha256sum --check --quiet

step='unpack the node bundle'
if [[ ! -d {releases}/{hash} ]]; then
  python3 -m zipfile -e "$work/bundle.zip" "$work/release"
  mv -T "$work/release" {releases}/{hash}
fi
ln -s {releases}/{hash} "$work/current"
mv -T "$work/current" {current}

step='install the agent'
python3 {current}/bootstrap install
"""
