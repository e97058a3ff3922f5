//! Fork tests, in a process with one thread. Each scenario runs in a child of its own.
mod bed;
mod sharing;
mod descriptors;
mod processes;
mod chains;
mod random;
mod rlimits;

use bed::{LATER, LZ4, file, fork, wait};
use chains::{chains_of_forks_that_keep_nothing_have_no_end, long_chains_of_forks_keep_all_data};
use descriptors::{
    a_file_needs_no_descriptor_or_path_at_the_fork, a_lowered_limit_moves_no_number, ancestors_files_are_only_read,
    another_file_under_our_number_is_left_alone, numbers_are_in_the_guarded_range, what_children_read_is_given_up,
};
use outswap_store::{MAX_UNIT_ORDER, TierConfig};
use outswap_sys::os;
use processes::{a_namespace_does_not_forget_who_is_outside, who_executes_shares_nothing};
use random::random_families;
use rlimits::{a_limit_of_file_size_kills_nobody, little_address_space_is_enough};
use sharing::{
    each_process_keeps_its_own, entries_are_used_again, freed_here_is_kept_for_the_other, the_dead_are_cleared,
    the_limit_is_the_trees, what_a_dead_parent_left_counts, with_many_sharers_own_segments_are_freed,
};
use std::sync::atomic::Ordering::Relaxed;

fn main() {
    let lz4 = |max_bytes| TierConfig::new(LZ4, max_bytes);
    type Scenario<'a> = (&'a str, &'a dyn Fn());
    let scenarios: [Scenario; 25] = [
        ("file only", &|| each_process_keeps_its_own(&[file(0)])),
        ("compressed over file", &|| each_process_keeps_its_own(&[lz4(1 << 20), file(0)])),
        ("compressed only", &|| each_process_keeps_its_own(&[lz4(0)])),
        ("freed here is kept for the other", &freed_here_is_kept_for_the_other),
        ("the dead are cleared", &the_dead_are_cleared),
        ("the limit is the tree's", &the_limit_is_the_trees),
        ("entries are used again", &entries_are_used_again),
        ("ancestors' files are only read", &ancestors_files_are_only_read),
        ("what children read is given up", &what_children_read_is_given_up),
        ("another file under our number is left alone", &another_file_under_our_number_is_left_alone),
        ("numbers are in the guarded range", &numbers_are_in_the_guarded_range),
        ("a lowered limit moves no number", &a_lowered_limit_moves_no_number),
        ("who executes shares nothing", &who_executes_shares_nothing),
        ("a namespace does not forget who is outside", &a_namespace_does_not_forget_who_is_outside),
        ("with many sharers own segments are freed", &with_many_sharers_own_segments_are_freed),
        ("long chains of forks keep all data", &long_chains_of_forks_keep_all_data),
        ("chains of forks that keep nothing have no end", &chains_of_forks_that_keep_nothing_have_no_end),
        ("what a dead parent left counts", &what_a_dead_parent_left_counts),
        ("a file needs no descriptor or path at the fork", &a_file_needs_no_descriptor_or_path_at_the_fork),
        ("random families over a file", &|| random_families(&[file(0)], 0..4)),
        ("random families over a small file", &|| random_families(&[file(30)], 4..8)),
        ("random families over two tiers", &|| random_families(&[lz4(500_000), file(0)], 8..12)),
        ("random families over large units", &|| {
            let large = |config| TierConfig { unit_order: Some(MAX_UNIT_ORDER), ..config };
            random_families(&[large(lz4(1 << 20)), large(file(100))], 12..16);
        }),
        ("a limit of file size kills nobody", &a_limit_of_file_size_kills_nobody),
        ("little address space is enough", &little_address_space_is_enough),
    ];
    let mut failed = 0;
    for (later, when) in ["at once", "children's later", "later"].into_iter().enumerate() {
        LATER.store(later as u32, Relaxed);
        for (name, scenario) in scenarios {
            let pid = fork();
            if pid == 0 {
                scenario();
                os::exit_group(0);
            }
            let ok = wait(pid) == 0;
            println!("fork: {name}, files made {when} ... {}", if ok { "ok" } else { "FAILED" });
            failed += !ok as i32;
        }
    }
    assert_eq!(failed, 0, "{failed} scenarios failed");
}
