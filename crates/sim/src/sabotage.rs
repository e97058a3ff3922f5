//! Defects of machines and stores that the harness must notice.

/// A defect that the harness must notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sabotage {
    /// None.
    None,
    /// The store gives another page than it was asked for.
    StoreWrongPage,
    /// The store loses what it was given and gives zeros.
    StoreForgets,
    /// Installing a page changes one byte.
    PutWrongByte,
    /// A write of the program is lost.
    LosesWrite,
    /// A page is taken with the content that it had before its last write.
    TakeOldContent,
    /// Dropped pages keep their content.
    KeepsDropped,
    /// A page moves to its new place without its content.
    TransferEmpty,
}
