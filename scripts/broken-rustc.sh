#!/bin/sh
# The compiler, for cargo's RUSTC_WORKSPACE_WRAPPER: with the deliberate breakages in what it compiles.
exec "$@" --cfg outswap_broken
