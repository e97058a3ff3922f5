//! Atomics, exchangeable for those of the loom model checker.
#[cfg(not(loom))]
pub use core::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
#[cfg(loom)]
pub use lazy::{AtomicBool, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize};
#[cfg(loom)]
pub use loom::sync::atomic::{Ordering, fence};

/// Loom's atomics must be made by a call, but tables are memory of zeros. These make theirs when first used.
#[cfg(loom)]
#[allow(missing_docs)]
mod lazy {
    use core::cell::{Cell, UnsafeCell};
    use core::mem::MaybeUninit;
    use loom::sync::atomic::Ordering;

    macro_rules! lazy {
        ($name:ident, $value:ty $(, $($arithmetic:ident)*)?) => {
            #[repr(C)]
            pub struct $name {
                start: $value,
                made: Cell<bool>,
                inner: UnsafeCell<MaybeUninit<loom::sync::atomic::$name>>,
            }
            // SAFETY: loom runs one thread at a time and does not switch between the look at `made` and its setting.
            unsafe impl Sync for $name {}
            // SAFETY: as above.
            unsafe impl Send for $name {}

            impl $name {
                pub const fn new(start: $value) -> Self {
                    let inner = UnsafeCell::new(MaybeUninit::uninit());
                    $name { start, made: Cell::new(false), inner }
                }
                fn inner(&self) -> &loom::sync::atomic::$name {
                    // SAFETY: see `Sync`; what is made is never changed or dropped.
                    unsafe {
                        if !self.made.replace(true) {
                            (*self.inner.get()).write(loom::sync::atomic::$name::new(self.start));
                        }
                        (*self.inner.get()).assume_init_ref()
                    }
                }
                pub fn load(&self, order: Ordering) -> $value {
                    self.inner().load(order)
                }
                pub fn store(&self, value: $value, order: Ordering) {
                    self.inner().store(value, order);
                }
                pub fn swap(&self, value: $value, order: Ordering) -> $value {
                    self.inner().swap(value, order)
                }
                pub fn compare_exchange(
                    &self,
                    seen: $value,
                    to: $value,
                    order: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    self.inner().compare_exchange(seen, to, order, failure)
                }
                pub fn compare_exchange_weak(
                    &self,
                    seen: $value,
                    to: $value,
                    order: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    self.inner().compare_exchange(seen, to, order, failure)
                }
                $($(pub fn $arithmetic(&self, value: $value, order: Ordering) -> $value {
                    self.inner().$arithmetic(value, order)
                })*)?
            }
        };
    }
    lazy!(AtomicBool, bool);
    lazy!(AtomicI64, i64, fetch_add fetch_sub fetch_max);
    lazy!(AtomicU8, u8, fetch_add fetch_sub fetch_or fetch_and);
    lazy!(AtomicU16, u16, fetch_add fetch_sub fetch_or fetch_and);
    lazy!(AtomicU32, u32, fetch_add fetch_sub fetch_or fetch_and fetch_max);
    lazy!(AtomicU64, u64, fetch_add fetch_sub fetch_or fetch_and fetch_max);
    lazy!(AtomicUsize, usize, fetch_add fetch_sub fetch_max);
}
