//! Programs that people run, each in a quarter of the memory that its plain run used.
use outswap_e2e::{Setup, is_full, workloads};

#[test]
fn redis_server() {
    workloads::redis(&Setup::new());
}

#[test]
fn memcached() {
    workloads::memcached(&Setup::new());
}

#[test]
fn python_objects() {
    let count = if is_full() { 120_000 } else { 80_000 };
    workloads::python_objects(&Setup::new(), count * workloads::scale(), workloads::QUARTER);
}

#[test]
fn python_numpy() {
    workloads::python_program(&Setup::new(), "arrays.py");
}

#[test]
fn python_multiprocessing() {
    workloads::python_program(&Setup::new(), "processes.py");
}

#[test]
fn gnu_sort() {
    workloads::sort(&Setup::new());
}

#[test]
fn sqlite_in_memory() {
    workloads::sqlite(&Setup::new());
}

#[test]
fn gcc() {
    workloads::gcc(&Setup::new());
}

#[test]
fn java() {
    workloads::java(&Setup::new());
}

#[test]
fn java_zgc() {
    workloads::java_zgc(&Setup::new());
}

#[test]
fn node() {
    workloads::node(&Setup::new());
}

#[test]
fn stress_ng() {
    workloads::stress_ng(&Setup::new());
}
