//! Deliberate breakages of the store, see [`outswap_core::broken`].

outswap_core::breakages! {
    /// What a seal says of a unit is not looked at.
    SealUnverified = "seal-unverified",
    /// A unit's header, which is sealed with it, does not tell its order.
    OrderUnsealed = "order-unsealed",
    /// Two units are sealed with the same number.
    NonceTwice = "nonce-twice",
    /// A fork leaves both sides the same key to write under.
    KeyKept = "key-kept",
    /// A segment is punched out of the file although another process still reads it.
    SharedPunched = "shared-punched",
    /// What was spilled stays in RAM as well.
    SpilledStays = "spilled-stays",
    /// What was spilled is looked for where it was.
    SpillForgotten = "spill-forgotten",
    /// What the cleaner moved is looked for where it was.
    CleanForgotten = "clean-forgotten",
    /// What compaction moved is looked for where it was.
    CompactForgotten = "compact-forgotten",
    /// A page that is kept as it is counts as compressed.
    RawAsCompressed = "raw-as-compressed",
    /// A unit goes with the first of its pages.
    LiveIgnored = "live-ignored",
    /// Pages of a unit in the file are taken for its first.
    IndexIgnored = "index-ignored",
    /// What is to be wiped stays in memory.
    WipeLeaves = "wipe-leaves",
    /// A device that a tier is slowed to is not waited for.
    DeviceUnawaited = "device-unawaited",
    /// Several reads are made one after the other.
    RingUnused = "ring-unused",
    /// What stands side by side in a file is not read as one.
    NeighboursApart = "neighbours-apart",
    /// A pool has as much memory as it wants.
    PoolUnlimited = "pool-unlimited",
}
