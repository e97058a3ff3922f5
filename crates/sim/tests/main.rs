//! The pager on a simulated machine. One program: what each of its parts has of the pager is built once.
#![cfg(not(loom))]

mod filling;
mod full;
mod huge;
mod large;
mod probation;
mod readahead;
mod reuse;
mod simulation;
mod tables;
mod taking;
mod untrapped;
