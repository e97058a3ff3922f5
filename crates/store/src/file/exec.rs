//! Executing a program ends a process's share in all files: that is said before, and taken back where it fails.
use super::segments::Segments;
use super::volume::FREE;
use crate::limits::MAX_VOLUMES;
use crate::lock::SpinLock;
use core::sync::atomic::Ordering::*;
use outswap_sys::os;

/// Threads that are about to execute a program. All-zero memory: none.
pub(super) struct Execs {
    state: SpinLock<State>,
}

/// How many they are, and what the first one took out of the family.
struct State {
    count: u32,
    /// Numbers of the files there + 1.
    files: [u32; MAX_VOLUMES],
}

impl Execs {
    /// In a forked child: it has none of its parent's threads.
    pub fn begin_child(&self) {
        *self.state.lock() = State { count: 0, files: [0; MAX_VOLUMES] };
    }

    /// Before this process executes a program, which ends its share in all files. While it does, nothing new is written.
    pub fn begin(&self, segments: &Segments) {
        let mut execs = self.state.lock();
        execs.count += 1;
        if execs.count > 1 || !segments.files.is_self() {
            return;
        }
        segments.files.volumes.iter().for_each(|volume| volume.begin_exec(os::getpid()));
        for (file, volume) in execs.files.iter_mut().zip(&segments.files.volumes) {
            *file = volume.family.swap(0, AcqRel);
        }
        if let Some(process) = segments.files.process() {
            segments.files.process.store(0, Relaxed);
            segments.files.family().forget(process);
        }
    }

    /// After such an attempt failed; the last one's ends what the first began.
    pub fn failed(&self, segments: &Segments) {
        let mut execs = self.state.lock();
        // A fork in between has forgotten all.
        let last = execs.count == 1;
        execs.count = execs.count.saturating_sub(1);
        if !last || !segments.files.is_self() {
            return;
        }
        segments.files.volumes.iter().for_each(|volume| volume.exec_failed(os::getpid()));
        let space = segments.files.space.load(Relaxed);
        let held = |(index, &file): (usize, &u32)| {
            let other = segments.files.own() != Some(index) && segments.files.volumes[index].state.load(SeqCst) != FREE;
            (file as usize).checked_sub(1).filter(|_| other)
        };
        let Some(process) = segments.files.family().reserve(space, execs.files.iter().enumerate().filter_map(held))
        else {
            return;
        };
        segments.files.family().set(process, os::getpid());
        segments.files.process.store(process as u32 + 1, Relaxed);
        for (index, file) in execs.files.iter().enumerate() {
            if let Some(file) = held((index, file)) {
                segments.files.volumes[index].family.store(file as u32 + 1, Release);
            }
        }
        if let Some(own) = segments.files.own() {
            // Somebody else may have its number by now.
            let file = segments.files.family().take_file(process, space);
            segments.files.volumes[own].family.store(file.map_or(0, |file| file as u32 + 1), Release);
            segments.publish();
        }
    }
}
