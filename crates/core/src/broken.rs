//! Deliberate breakages of policies and of correctness, each of which some test must notice.
//!
//! They exist only where everything is compiled with `--cfg outswap_broken`; the variable `OUTSWAP_BROKEN` names the one that
//! is wanted then. `make broken` runs, for each, the test that `tests/broken.txt` names, and fails where that test passes.

/// Declares what can be broken in a crate: an enum `Broken` and the function `is`, which says whether a variant is wanted. Each has
/// a name of its own among those of all crates.
#[macro_export]
macro_rules! breakages {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// What can be broken.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Broken { $($(#[doc = $doc])+ $variant,)+ }

        /// Whether this variant was asked for.
        #[cfg(outswap_broken)]
        pub fn is(variant: Broken) -> bool {
            static WANTED: std::sync::OnceLock<Option<Broken>> = std::sync::OnceLock::new();
            let wanted = WANTED.get_or_init(|| match std::env::var("OUTSWAP_BROKEN").ok().as_deref() {
                $(Some($name) => Some(Broken::$variant),)+
                // None, or another crate's: `scripts/broken.sh` knows all names.
                _ => None,
            });
            *wanted == Some(variant)
        }

        /// Whether this variant was asked for: never, in what is built to be used.
        #[cfg(not(outswap_broken))]
        pub const fn is(_: Broken) -> bool {
            false
        }
    };
}

breakages! {
    /// A page may become anything, whoever owns it.
    ReleaseUnchecked = "release-unchecked",
    /// No stream is ever seen.
    NoStreams = "no-streams",
    /// No stream that goes downwards is ever seen.
    StreamsRise = "streams-rise",
    /// Pages that are to be held after a fork are not.
    CopiesUnseen = "copies-unseen",
    /// Pages that others have are taken as copies where the store has no room for those.
    SharedIsCopied = "shared-is-copied",
    /// Pages that leave while others have them count no more.
    LeftIsFree = "left-is-free",
    /// Others are taken to have measured what a measurement of this process's has found.
    OthersKnow = "others-know",
    /// Pages that a call uses are held, too.
    PinnedHeld = "pinned-held",
    /// No folio is larger than a block.
    NoLarge = "no-large",
    /// Slots for a part of a larger folio that does not go whole stay its.
    PartKept = "part-kept",
    /// Of a folio larger than a part, a stream's fault brings one part.
    LargeInParts = "large-in-parts",
    /// Of short runs of touches all are taken to go on.
    ShortRunsGoOn = "short-runs-go-on",
    /// No stream that goes by steps is ever seen, where the store is memory.
    StreamsKeepStep = "streams-keep-step",
    /// No stream of a stride is ever seen.
    NoStrides = "no-strides",
    /// Reading ahead is taken to pay.
    AheadPays = "ahead-pays",
    /// Hits on pages read ahead are not told to who sizes windows.
    AheadUntold = "ahead-untold",
    /// Pages read ahead are mapped with what was touched.
    MissIsBypass = "miss-is-bypass",
    /// What was read ahead is released while it is still needed.
    AheadReleased = "ahead-released",
    /// What is being read ahead is not forgotten where it is evicted.
    AheadRemembered = "ahead-remembered",
    /// Pages read ahead stay until there is no room for anything else.
    AheadStays = "ahead-stays",
    /// A stream whose next block is there has ended.
    StreamsEndWhereMet = "streams-end-where-met",
    /// Memory that is being filled comes as far as runs of touches tell.
    NothingIsFilled = "nothing-is-filled",
    /// Zero pages are mapped whether there is plenty of room or not.
    ZerosUnlimited = "zeros-unlimited",
    /// Pages are left to the kernel whether there is plenty of room or not.
    UntrappedUnlimited = "untrapped-unlimited",
    /// What is left to the kernel stays its own until it is evicted, however short memory is.
    UntrappedStays = "untrapped-stays",
    /// What the kernel has not filled counts as filled when it is taken back.
    UnfilledCounts = "unfilled-counts",
    /// Pages that calls are using are taken back from the kernel.
    PinnedTrapped = "pinned-trapped",
    /// Nothing is brought in ahead of a stream.
    NoReadAhead = "no-read-ahead",
    /// What calls bring in is taken for a stream of the program's.
    CallsAreTouches = "calls-are-touches",
    /// A touch of an isolated page is not remembered.
    NoReferences = "no-references",
    /// What comes back from the store is queued as all else.
    NoProbation = "no-probation",
    /// That a block was touched while it was sounded is not remembered.
    SoundingsUnheard = "soundings-unheard",
    /// That a page came back soon is not remembered.
    SoonForgotten = "soon-forgotten",
    /// Blocks that the machine refuses are asked again at once.
    NoRest = "no-rest",
    /// Calls that need no fault are made without looking whether they do.
    DirectUnchecked = "direct-unchecked",
    /// What was handed over is handed over again where it is touched meanwhile.
    HandedTwice = "handed-twice",
    /// Locked pages are evicted.
    LockedGo = "locked-go",
    /// Pages in use by calls are evicted.
    PinsIgnored = "pins-ignored",
    /// Pages in use by calls are looked for before pages are claimed, not after.
    PinsFirst = "pins-first",
    /// A page that came in with its slot counts as unchanged.
    DirtyIsClean = "dirty-is-clean",
    /// Nothing counts as unchanged.
    NothingIsClean = "nothing-is-clean",
    /// Room in a file counts as scarce as memory.
    AllScarce = "all-scarce",
    /// Pages keep their slots although nobody wants to know whether they changed.
    OffKeeps = "off-keeps",
    /// What is known of a parent's pages counts for those of its forked child.
    EpochKept = "epoch-kept",
    /// Pages are put write-protected where the machine may not see to that.
    PutUnprotected = "put-unprotected",
    /// A page that the machine did not take counts as protected as before.
    ProtectionTrusted = "protection-trusted",
    /// A page that was moved back counts as writable.
    MovedWritable = "moved-writable",
    /// A page that somebody owns counts as unlocked.
    OwnedUnlocked = "owned-unlocked",
    /// Pages that calls use stay write-protected.
    CallsOnlyRead = "calls-only-read",
    /// A touch of an isolated page brings that page alone.
    HitsAlone = "hits-alone",
    /// Pages come along with a touched one, whatever probes tell.
    ProbesUnheard = "probes-unheard",
    /// Pages of probes are not watched.
    ProbesUnseen = "probes-unseen",
    /// Huge pages come whatever the program has used of what lies before.
    HugeUnasked = "huge-unasked",
    /// Huge pages come as long as there is memory at all.
    HugeUnlimited = "huge-unlimited",
    /// Pages of zeros are stored.
    NoZero = "no-zero",
    /// What a store gives back is not verified.
    Unverified = "unverified",
    /// Folios go out page by page.
    NoFolios = "no-folios",
    /// What was written out replaces a page that was touched meanwhile.
    CommitBlindly = "commit-blindly",
    /// A batch whose frames the machine did not free counts as freed.
    ReleaseForgotten = "release-forgotten",
    /// Frames that are kept do not count.
    KeptUncounted = "kept-uncounted",
    /// Frames that are kept are freed by nobody who needs room.
    KeptForEver = "kept-for-ever",
    /// Pages that the machine did not drop count as dropped.
    DropForgotten = "drop-forgotten",
    /// No room is made.
    NoLimit = "no-limit",
    /// Batches are written out at once.
    NoInactive = "no-inactive",
    /// What is yielded to others goes as soon as anything does.
    YieldedAtOnce = "yielded-at-once",
    /// Nothing is yielded to others.
    NothingYielded = "nothing-yielded",
    /// What is unmapped keeps its slot.
    SlotsLeak = "slots-leak",
    /// A page that comes in is put wherever its mapping was.
    MapUnchecked = "map-unchecked",
    /// Neighbours are wanted again where the machine has none.
    NeverAlone = "never-alone",
    /// Pages stay in the window for having been touched.
    WindowKeeps = "window-keeps",
    /// Regions are not marked.
    NoRegions = "no-regions",
    /// What the program uses is looked at in vain.
    LooksIgnored = "looks-ignored",
    /// A store that has refused is given all that follows.
    FullInsisted = "full-insisted",
    /// Pages that the program had not before are let in although the store is full.
    NoHoldingBack = "no-holding-back",
    /// A folio that was refused is not tried in smaller ones.
    NoLadder = "no-ladder",
    /// What a store will have stored later counts as stored.
    WriteNotAwaited = "write-not-awaited",
    /// A slot's store is not told that it is free.
    StoreKeeps = "store-keeps",
    /// Memory that is to be whole elsewhere goes without what a store has of it.
    StoredStays = "stored-stays",
    /// What waits stays where it is although the program has it evicted.
    WaitingStays = "waiting-stays",
}
