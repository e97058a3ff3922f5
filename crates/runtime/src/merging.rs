//! The kernel merges equal pages where a process asked for that (KSM, `prctl(PR_SET_MEMORY_MERGE)`), or has it from its parent. It maps
//! such a page anew, without the write protection of userfaultfd: the first write is not noticed, and what the page's slot holds
//! would count as its content.
//!
//! So a managed process ends what it has inherited, before it has pages, and the range filter refuses to begin it
//! ([`crate::filter`]). `madvise(MADV_MERGEABLE)` on managed memory does nothing.
use outswap_core::protection::Kind;
use outswap_sys::os;

/// Has no pages of this process merged. Where that fails, gives another way than write protection to know pages to be unchanged.
pub fn end(reuse: Kind) -> Kind {
    const TRIES: usize = 3;
    let is_ended = (0..TRIES).any(|_| !os::merges_pages() || os::merge_none().is_ok());
    if is_ended || reuse != Kind::Protect { reuse } else { Kind::Hash }
}
