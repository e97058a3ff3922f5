//! The store of this process. Nothing else here names its type: what is used of it stands in core's `Store`, which is all that the
//! pager and the budget need, and in [`ProcessStore`].
pub use outswap_store::{Asked, AskedTier, InitError, Later, ProcessStore};

/// The store.
pub type OurStore = outswap_store::Tiers;
