//! The address map: which pages of the managed range are mapped, with which access.
use crate::machine::Prot;
use crate::table::Reserve;
use crate::units::PageNo;

/// The number of a shared object: what one call mapped as shared memory. Parts of it may have different attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectNo(pub u16);

/// A mapping: consecutive pages with the same attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Vma {
    /// First page.
    pub first: PageNo,
    /// Number of pages.
    pub count: u32,
    /// Access.
    pub prot: Prot,
    /// The range holds something that the kernel manages (a file, shared memory), put there by `MAP_FIXED`.
    pub foreign: bool,
    /// Locked by the program; pages that appear later are locked too.
    pub locked: bool,
    /// Locked by the program as pages are touched: what is not there is not brought in.
    pub on_fault: bool,
    /// Locked for the kernel, which uses the pages by itself: stays so until it is unmapped.
    pub kept: bool,
    /// Locked because no copy of its content may be anywhere else.
    pub private: bool,
    /// The shared object that it is part of; none where it is private memory.
    pub object: Option<ObjectNo>,
}

impl Vma {
    /// A managed mapping that nothing holds in memory.
    pub fn new(first: PageNo, count: u32, prot: Prot) -> Vma {
        Vma {
            first,
            count,
            prot,
            foreign: false,
            locked: false,
            on_fault: false,
            kept: false,
            private: false,
            object: None,
        }
    }
    /// Number of the first page after the mapping.
    pub fn end(&self) -> u32 {
        self.first.0 + self.count
    }
    /// Managed pages that are writable.
    fn writable(&self) -> u32 {
        if self.foreign || self.prot.0 & Prot::WRITE.0 == 0 { 0 } else { self.count }
    }
    /// Pages that count as data (`RLIMIT_DATA`): private and writable. What is foreign is the kernel's to count.
    fn data(&self) -> u32 {
        if self.object.is_some() { 0 } else { self.writable() }
    }
    /// Whether its pages stay in memory once they are there.
    pub fn is_held(&self) -> bool {
        self.locked || self.kept || self.private
    }
    fn same_kind(&self, other: &Vma) -> bool {
        Vma { first: other.first, count: other.count, ..*self } == *other
    }
}

/// Why a change of the map was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapError {
    /// No gap is large enough, or the map holds as many mappings as it can.
    NoRoom,
    /// Part of the range is not mapped, or is no managed address space.
    Hole,
}

/// All mappings, sorted by address.
pub struct Map {
    entries: &'static mut [core::mem::MaybeUninit<Vma>],
    len: usize,
    pages: u32,
    /// Gaps are taken below.
    top: u32,
    /// Pages mapped.
    mapped: u32,
    /// Those of them that count as data.
    data: u32,
    /// Those of managed mappings that are writable.
    writable: u32,
    /// Where the next search for a gap starts.
    cursor: u32,
    /// Where the last gap began, and its pages.
    taken: u32,
    taken_pages: u32,
    /// Where the highest one ended.
    highest: u32,
    /// Where searches start over.
    bottom: u32,
    /// Of the last gap the first pages were unmapped again, and not the last.
    is_cut: bool,
    /// Where gaps are taken one below the other: from the end, which falls.
    falling: core::ops::Range<u32>,
    /// See [`Map::changes`].
    changes: u32,
}

/// Address space that gaps are taken from before the search starts over: 1 GiB, and twice what is mapped. And what is near.
const ROAM_PAGES: u64 = 1 << 18;
/// Gaps that have room where they are taken one below the other.
const FALLING: u32 = 64;

impl Map {
    /// Reserves a map of a range of `pages` pages with at most `capacity` mappings.
    pub fn new(from: &impl Reserve, pages: u32, capacity: usize) -> Option<Map> {
        let base = from.reserve(capacity * core::mem::size_of::<Vma>()) as *mut core::mem::MaybeUninit<Vma>;
        if base.is_null() {
            return None;
        }
        // SAFETY: `reserve` returned that much page-aligned memory, ours alone, for as long as the pager lives.
        let entries = unsafe { core::slice::from_raw_parts_mut(base, capacity) };
        Some(Map {
            entries,
            len: 0,
            pages,
            top: pages,
            mapped: 0,
            data: 0,
            writable: 0,
            cursor: 0,
            taken: 0,
            taken_pages: 0,
            highest: 0,
            bottom: 0,
            is_cut: false,
            falling: 0..0,
            changes: 0,
        })
    }

    fn get(&self, i: usize) -> &Vma {
        assert!(i < self.len);
        // SAFETY: entries below `len` were written.
        unsafe { self.entries[i].assume_init_ref() }
    }
    fn get_mut(&mut self, i: usize) -> &mut Vma {
        assert!(i < self.len);
        // SAFETY: entries below `len` were written.
        unsafe { self.entries[i].assume_init_mut() }
    }

    /// Index of the first mapping that ends after `page`.
    fn lower(&self, page: u32) -> usize {
        let (mut lo, mut hi) = (0, self.len);
        while lo < hi {
            let mid = (lo + hi) / 2;
            if self.get(mid).end() <= page { lo = mid + 1 } else { hi = mid }
        }
        lo
    }

    fn insert_at(&mut self, i: usize, vma: Vma) {
        self.entries.copy_within(i..self.len, i + 1);
        self.entries[i].write(vma);
        self.len += 1;
    }
    fn remove_at(&mut self, i: usize) {
        self.entries.copy_within(i + 1..self.len, i);
        self.len -= 1;
    }

    /// Mappings in all.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Whether nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Pages mapped in all.
    pub fn mapped(&self) -> u32 {
        self.mapped
    }
    /// Pages of writable managed mappings that are private.
    pub fn data(&self) -> u32 {
        self.data
    }
    /// Pages of writable managed mappings.
    pub fn writable(&self) -> u32 {
        self.writable
    }

    /// The mapping around a page.
    pub fn find(&self, page: PageNo) -> Option<Vma> {
        let i = self.lower(page.0);
        (i < self.len && self.get(i).first.0 <= page.0).then(|| *self.get(i))
    }

    /// The first mapping that ends after `page`, cut to what lies in `[page, end)`.
    pub fn next_in(&self, page: u32, end: u32) -> Option<Vma> {
        let i = self.lower(page);
        if page >= end || i >= self.len || self.get(i).first.0 >= end {
            return None;
        }
        let mut vma = *self.get(i);
        let (from, to) = (vma.first.0.max(page), vma.end().min(end));
        vma.first = PageNo(from);
        vma.count = to - from;
        Some(vma)
    }

    /// The number of the first page after a range, where all of it is managed address space.
    fn end_of(&self, first: PageNo, count: u32) -> Option<u32> {
        first.0.checked_add(count).filter(|end| *end <= self.pages)
    }

    /// Whether every page of the range is mapped.
    pub fn covered(&self, first: PageNo, count: u32) -> bool {
        let Some(end) = self.end_of(first, count) else { return false };
        let mut page = first.0;
        while page < end {
            match self.next_in(page, end) {
                Some(vma) if vma.first.0 == page => page = vma.end(),
                _ => return false,
            }
        }
        true
    }

    /// Whether no page of the range is mapped.
    pub fn is_free(&self, first: PageNo, count: u32) -> bool {
        self.end_of(first, count).is_some_and(|end| self.next_in(first.0, end).is_none())
    }

    /// Has gaps taken from `bottom` on. What lies below is used when there is no room above. To be called before anything is
    /// mapped.
    pub fn set_bottom(&mut self, bottom: PageNo) {
        assert!(bottom.0 < self.pages && self.len == 0, "an empty map has its bottom inside");
        (self.cursor, self.bottom, self.taken, self.highest) = (bottom.0, bottom.0, bottom.0, bottom.0);
    }
    /// See [`Map::set_bottom`].
    pub fn bottom(&self) -> PageNo {
        PageNo(self.bottom)
    }

    /// Has gaps taken below `top`, which is no less than the bottom, only: what lies above is for mappings at places that are given.
    pub fn set_top(&mut self, top: PageNo) {
        assert!(self.bottom <= top.0 && top.0 <= self.pages, "gaps are inside");
        self.top = top.0;
    }

    /// A gap of `count` pages that starts at a multiple of `align` pages.
    ///
    /// The search goes on where the last one ended, so that what was just unmapped stays unmapped for a while (a stray
    /// access is then seen as one), and starts over at the bottom before it has gone through much more address space than is
    /// mapped, because tables grow with the address space that was ever used. Where the end of the last gap was unmapped again, and
    /// not all of it, the search goes on there: who maps more than it needs, and cuts off what lies over a border, gets one piece
    /// behind the other. Where the beginning was unmapped, and the next is as large, that one comes below, in some room for several: who keeps
    /// the upper half of each gets one piece below the other.
    pub fn gap(&mut self, count: u32, align: u32) -> Option<PageNo> {
        let reach = (self.bottom as u64 + self.mapped as u64 * 2 + ROAM_PAGES).min(self.top as u64);
        if core::mem::take(&mut self.is_cut)
            && count == self.taken_pages
            && let Some(first) = self.gap_below(count, align, reach)
        {
            (self.taken, self.falling.end) = (first.0, first.0);
            return Some(first);
        }
        let found = match self.gap_from(self.cursor, count, align) {
            Some(first) if first.0 as u64 + count as u64 <= reach => first,
            _ => self.gap_from(self.bottom, count, align).or_else(|| self.gap_from(0, count, align))?,
        };
        (self.taken, self.taken_pages, self.cursor) = (found.0, count, found.0 + count);
        self.highest = self.highest.max(self.cursor);
        Some(found)
    }

    /// A gap at the end of where they fall, or of the next such room.
    fn gap_below(&mut self, count: u32, align: u32, reach: u64) -> Option<PageNo> {
        let last = |end: u32| end.checked_sub(count).map(|first| first - first % align);
        let fits =
            |map: &Map| last(map.falling.end).filter(|&f| f >= map.falling.start && map.is_free(PageNo(f), count));
        if let Some(first) = fits(self) {
            return Some(PageNo(first));
        }
        let pages = count.checked_mul(FALLING)?;
        let room = self.gap_from(self.cursor, pages, align).filter(|room| room.0 as u64 + pages as u64 <= reach)?;
        self.falling = room.0..room.0 + pages;
        self.cursor = self.falling.end;
        self.highest = self.highest.max(self.cursor);
        fits(self).map(PageNo)
    }

    /// Whether a range begins among gaps that were taken, or that or a mapping is near. What lies anywhere else needs tables of its own.
    pub fn is_near(&self, first: PageNo, count: u32) -> bool {
        let (near, end) = (ROAM_PAGES, first.0 as u64 + count as u64);
        let i = self.lower(first.0);
        let is_next = i < self.len && (self.get(i).first.0 as u64) < end + near;
        let is_last = i > 0 && self.get(i - 1).end() as u64 + near > first.0 as u64;
        let is_among = self.bottom <= first.0 && (first.0 as u64) < self.highest as u64 + near;
        is_next || is_last || is_among
    }

    fn gap_from(&self, from: u32, count: u32, align: u32) -> Option<PageNo> {
        let mut start = from as u64;
        for i in self.lower(from)..=self.len {
            let next = if i < self.len { self.get(i).first.0 } else { self.pages };
            let end = next.min(self.top) as u64;
            let aligned = start.next_multiple_of(align as u64);
            if aligned + count as u64 <= end {
                return Some(PageNo(aligned as u32));
            }
            if i < self.len {
                start = self.get(i).end() as u64;
            }
        }
        None
    }

    /// How often something was mapped, unmapped, or changed; it goes round.
    pub fn changes(&self) -> u32 {
        self.changes
    }

    /// Whether `extra` more mappings certainly fit.
    pub fn has_room(&self, extra: usize) -> bool {
        self.len + extra <= self.entries.len()
    }

    /// Adds a mapping over a free range, joining it with neighbours of the same kind.
    pub fn insert(&mut self, vma: Vma) -> Result<(), MapError> {
        if vma.count == 0 || !self.is_free(vma.first, vma.count) || !self.has_room(1) {
            return Err(MapError::NoRoom);
        }
        self.changes = self.changes.wrapping_add(1);
        let i = self.lower(vma.first.0);
        self.insert_at(i, vma);
        self.join(i);
        self.mapped += vma.count;
        self.data += vma.data();
        self.writable += vma.writable();
        Ok(())
    }

    /// Joins entry `i` with its neighbours where they touch and are alike.
    fn join(&mut self, i: usize) {
        if i + 1 < self.len && self.get(i).end() == self.get(i + 1).first.0 && self.get(i).same_kind(self.get(i + 1)) {
            self.get_mut(i).count += self.get(i + 1).count;
            self.remove_at(i + 1);
        }
        if i > 0 && self.get(i - 1).end() == self.get(i).first.0 && self.get(i - 1).same_kind(self.get(i)) {
            self.get_mut(i - 1).count += self.get(i).count;
            self.remove_at(i);
        }
    }

    /// Makes `page` a border between mappings.
    fn split(&mut self, page: u32) {
        let i = self.lower(page);
        if i < self.len && self.get(i).first.0 < page {
            let mut tail = *self.get(i);
            tail.count = tail.end() - page;
            tail.first = PageNo(page);
            self.get_mut(i).count -= tail.count;
            self.insert_at(i + 1, tail);
        }
    }

    /// How many mappings more there are once a range has borders at both its ends.
    fn cuts(&self, first: PageNo, count: u32) -> usize {
        let inside = |page: u32| self.find(PageNo(page)).is_some_and(|v| v.first.0 < page);
        inside(first.0) as usize + inside(first.0 + count) as usize
    }

    /// Removes whatever is mapped in a range.
    pub fn remove(&mut self, first: PageNo, count: u32) -> Result<(), MapError> {
        let end = self.end_of(first, count).ok_or(MapError::Hole)?;
        if !self.has_room(self.cuts(first, count)) {
            return Err(MapError::NoRoom);
        }
        self.changes = self.changes.wrapping_add(1);
        self.split(first.0);
        self.split(end);
        let from = self.lower(first.0);
        let mut to = from;
        while to < self.len && self.get(to).first.0 < end {
            self.mapped -= self.get(to).count;
            self.data -= self.get(to).data();
            self.writable -= self.get(to).writable();
            to += 1;
        }
        self.entries.copy_within(to..self.len, from);
        self.len -= to - from;
        if first.0 > self.taken && end == self.cursor {
            self.cursor = first.0;
        }
        if first.0 == self.taken && end < self.taken + self.taken_pages {
            self.is_cut = true;
            if self.falling.end == first.0 {
                self.falling.end = end;
            }
        }
        Ok(())
    }

    /// Changes attributes of all mappings in a range.
    pub fn update(&mut self, first: PageNo, count: u32, change: impl Fn(&mut Vma)) -> Result<(), MapError> {
        if !self.covered(first, count) {
            return Err(MapError::Hole);
        }
        if !self.has_room(self.cuts(first, count)) {
            return Err(MapError::NoRoom);
        }
        self.changes = self.changes.wrapping_add(1);
        self.split(first.0);
        self.split(first.0 + count);
        let mut page = first.0;
        while page < first.0 + count {
            let i = self.lower(page);
            self.data -= self.get(i).data();
            self.writable -= self.get(i).writable();
            change(self.get_mut(i));
            self.data += self.get(i).data();
            self.writable += self.get(i).writable();
            page = self.get(i).end();
            self.join(i);
        }
        let i = self.lower(first.0 + count);
        if i < self.len {
            self.join(i);
        }
        Ok(())
    }
}
