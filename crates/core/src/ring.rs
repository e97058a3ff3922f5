//! A bounded first-in-first-out queue of numbers in reserved memory.
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::table::{Reserve, Table};

/// A queue of `u32`. It sits behind a lock; the atomics only serve to write through a shared table.
pub struct Ring {
    items: Table<AtomicU32>,
    head: u64,
    tail: u64,
}

impl Ring {
    /// Reserves a queue for `capacity` numbers.
    pub fn new(from: &impl Reserve, capacity: usize) -> Option<Ring> {
        Some(Ring { items: Table::new(from, capacity)?, head: 0, tail: 0 })
    }
    /// How many numbers wait.
    pub fn len(&self) -> usize {
        (self.tail - self.head) as usize
    }
    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.head == self.tail
    }
    /// Appends a number.
    ///
    /// # Panics
    /// When full: every queue here has room for each number that can exist, once.
    pub fn push(&mut self, item: u32) {
        assert!(self.len() < self.items.len(), "queue holds each number at most once");
        self.items[(self.tail % self.items.len() as u64) as usize].store(item, Relaxed);
        self.tail += 1;
    }
    /// The oldest number, which stays.
    pub fn oldest(&self) -> Option<u32> {
        (!self.is_empty()).then(|| self.items[(self.head % self.items.len() as u64) as usize].load(Relaxed))
    }
    /// Takes the number that was appended last.
    pub fn pop_newest(&mut self) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        self.tail -= 1;
        Some(self.items[(self.tail % self.items.len() as u64) as usize].load(Relaxed))
    }
    /// Takes the oldest number.
    pub fn pop(&mut self) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        let item = self.items[(self.head % self.items.len() as u64) as usize].load(Relaxed);
        self.head += 1;
        Some(item)
    }
}
