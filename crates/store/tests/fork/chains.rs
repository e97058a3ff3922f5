//! Long chains of forks.
use crate::bed::{Bed, file, wait};
use outswap_store::MAX_VOLUMES;
use outswap_store::ProcessStore;
use outswap_sys::Errno;

/// A chain of forks in which each process writes: beyond the most files, there is none to write to, and all is read right.
pub fn long_chains_of_forks_keep_all_data() {
    const DEPTH: u32 = 20;
    fn descend(bed: &mut Bed, depth: u32) {
        let written = (0..40).filter(|i| bed.try_put(depth * 100 + i, depth * 100 + i).is_ok()).count();
        let has_file = depth < MAX_VOLUMES as u32;
        assert_eq!(written, if has_file { 40 } else { 0 }, "at depth {depth}");
        assert_eq!(bed.store.file_error(), (!has_file).then_some(Errno::EMFILE));
        for above in 0..=depth.min(MAX_VOLUMES as u32 - 1) {
            (0..40).for_each(|i| bed.check(above * 100 + i, above * 100 + i));
        }
        if depth == DEPTH {
            // Without what one of the ancestors left, there is room again for a child's file.
            (0..40).for_each(|i| bed.free(300 + i));
            let child = bed.fork(|bed| {
                bed.put(300, 1);
                bed.check(300, 1);
                bed.check(1500, 1500);
            });
            assert_eq!(wait(child), 0);
            return;
        }
        let child = bed.fork(|bed| descend(bed, depth + 1));
        assert_eq!(wait(child), 0);
        (0..written as u32).for_each(|i| bed.check(depth * 100 + i, depth * 100 + i));
    }
    descend(&mut Bed::new(&[file(0)]), 0);
}

/// A chain in which nobody keeps what the ancestors wrote can be as long as it likes, and its files are closed.
pub fn chains_of_forks_that_keep_nothing_have_no_end() {
    fn descend(bed: &mut Bed, depth: u32) {
        (0..100).for_each(|slot| bed.put(slot, depth + slot));
        (0..100).for_each(|slot| bed.check(slot, depth + slot));
        (0..100).for_each(|slot| bed.free(slot));
        assert!(bed.store.descriptors().count() <= 5);
        if depth < 40 {
            let child = bed.fork(|bed| descend(bed, depth + 1));
            assert_eq!(wait(child), 0);
        }
    }
    descend(&mut Bed::new(&[file(0)]), 0);
}
