#!/bin/bash
# Installs what is missing to build (`setup.sh demo`), or also to test (`setup.sh test`) or to measure programs
# (`setup.sh bench`), on a Debian-like machine.
set -euo pipefail

missing=()
need() { # command or file, package
    if [[ $1 == /* ]]; then
        compgen -G "$1" >/dev/null || missing+=("$2")
    else
        command -v "$1" >/dev/null || missing+=("$2")
    fi
}
need cc gcc
need curl curl
need make make
need redis-server redis-server
stage=${1:-demo}
if [[ $stage == test ]]; then
    need g++ g++
    need memcached memcached
    need stress-ng stress-ng
    need setpriv util-linux
fi
if [[ $stage == bench ]]; then
    need git git
    need redis-benchmark redis-tools
fi
if [[ $stage == test || $stage == bench ]]; then
    need sqlite3 sqlite3
    need python3 python3
    /usr/bin/python3 -c 'import numpy' 2>/dev/null || missing+=(python3-numpy)
    need node nodejs
    need javac default-jdk-headless
fi
if ((${#missing[@]})); then
    echo "installing: ${missing[*]}"
    sudo=""
    if [[ $(id -u) != 0 ]]; then sudo=sudo; fi
    # Servers are wanted as programs, not started as services.
    policy=/usr/sbin/policy-rc.d
    made_policy=
    if [[ ! -e $policy ]]; then
        printf '#!/bin/sh\nexit 101\n' | $sudo tee $policy >/dev/null
        $sudo chmod +x $policy
        made_policy=1
    fi
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq update
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
    if [[ -n $made_policy ]]; then $sudo rm -f $policy; fi
fi
if ! command -v cargo >/dev/null; then
    if [[ -x $HOME/.cargo/bin/cargo ]]; then
        echo "cargo is in ~/.cargo/bin, which is not in PATH: run 'source ~/.cargo/env'" >&2
        exit 1
    fi
    echo "installing Rust"
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal -c rustfmt -c clippy
    echo "Rust was installed: run 'source ~/.cargo/env', then the same command again" >&2
    exit 1
fi
