#!/bin/bash
# Installs what is missing to build (`setup.sh demo`), or also to test (`setup.sh test`), to measure programs (`setup.sh bench`), or to
# run larger programs (`setup.sh full`; what cannot be had of these is named and left out), on a Debian-like machine.
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
need /usr/include/stdio.h libc6-dev
need curl curl
need /etc/ssl/certs/ca-certificates.crt ca-certificates
need make make
need redis-server redis-server
stage=${1:-demo}
if [[ $stage == test ]]; then
    need g++ g++
    need memcached memcached
    need perl perl
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
if [[ $stage == full ]]; then
    PATH=$PATH:/usr/sbin
    need git git
    need perl perl
    need php php-cli
    need '/usr/sbin/php-fpm*' php-fpm
    need nginx nginx-light
    need mariadbd mariadb-server
    need '/usr/lib/postgresql/*/bin/postgres' postgresql
    need ruby ruby
    need ffmpeg ffmpeg
    need javac default-jdk-headless
    need chromium chromium
    need firefox-esr firefox-esr
    need luajit luajit
    need sbcl sbcl
    need ghc ghc
    need ocamlc ocaml-nox
    need erlc erlang-base
    need fpc fpc
    need go golang-go
    need Rscript r-base-core
    need swipl swi-prolog-nox
    need octave-cli octave
    # Some machines have another program of that name.
    dpkg -s imagemagick >/dev/null 2>&1 || missing+=(imagemagick)
    need emacs emacs-nox
    need guile guile-3.0
    need gawk gawk
    need lua5.4 lua5.4
    need tclsh tcl
    need xz xz-utils
    need mono mono-runtime
    need mcs mono-mcs
    need pdflatex texlive-latex-extra
    need gs ghostscript
    need gfortran gfortran
    need mpirun openmpi-bin
    need mpicc libopenmpi-dev
    need clang++ clang
    /usr/bin/python3 -c 'import venv, ensurepip' 2>/dev/null || missing+=(python3-venv)
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
    if [[ $stage == full ]]; then
        wanted=("${missing[@]}")
        missing=()
        for package in "${wanted[@]}"; do
            if apt-get -qq -s install "$package" >/dev/null 2>&1; then missing+=("$package"); else echo "cannot be had: $package"; fi
        done
    fi
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
    if [[ -n $made_policy ]]; then $sudo rm -f $policy; fi
fi
# Libraries that distributions have not, or have in old versions, go into a directory of their own.
python=$(dirname "$0")/../target/e2e-python
if [[ $stage == full && ! -x $python/bin/python ]]; then
    echo "installing Python libraries into target/e2e-python"
    mkdir -p "$(dirname "$python")"
    /usr/bin/python3 -m venv "$python"
    for library in pandas pyarrow polars duckdb scikit-learn; do
        "$python/bin/pip" install -q --disable-pip-version-check --only-binary :all: "$library" || echo "cannot be had: $library"
    done
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
