//! Where in the C library calls for memory are made: the `syscall` instructions of its `mmap`, its `brk`, and of `syscall`, by which
//! SBCL maps its heap.
//!
//! The process filter must trap these, and it outlives the program. The next program's loader and C library map memory before
//! they can answer a trap. By chance they lie where this program's did; but then hardly with the very instruction.
use crate::limits::{HEAP_CALLS, LINKER_CALLS};
use crate::scan::pairs;
use core::slice;
use outswap_sys::nr;

/// ELF: what a program header and an entry of the dynamic section are of, and the words of the latter.
const PT_DYNAMIC: u32 = 2;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
/// Sizes of what is in the tables.
const PROGRAM_HEADER_BYTES: usize = 56;
const SYMBOL_BYTES: usize = 24;
/// The instruction that makes a call.
pub const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// Longer functions are not what is looked for.
const FUNCTION_MAX_BYTES: u64 = 4096;
/// The longest chain of symbols with one hash that is gone through.
const CHAIN_MAX: usize = 1000;

/// Addresses after instructions, as ascending ranges of one.
#[derive(Default)]
pub struct HeapCalls {
    of: [(usize, usize); HEAP_CALLS],
    len: usize,
}

impl HeapCalls {
    /// The ranges.
    pub fn get(&self) -> &[(usize, usize)] {
        &self.of[..self.len]
    }

    /// Those of a C library that is mapped at this range; `None` where it is not as expected.
    pub fn find((start, end): (usize, usize)) -> Option<HeapCalls> {
        if start == 0 {
            return None;
        }
        // SAFETY: a file is mapped there, readable; it is mapped until the process ends, and only tables that the loader has
        // filled in before are read. It is read by bytes, so what else changes there is of no matter.
        HeapCalls::of_image(unsafe { slice::from_raw_parts(start as *const u8, end - start) }, start)
    }

    fn of_image(image: &[u8], base: usize) -> Option<HeapCalls> {
        let image = Image { bytes: image, base: base as u64 };
        let mut found = HeapCalls::default();
        for name in [b"mmap".as_slice(), b"brk", b"syscall"] {
            let (at, bytes) = image.function(name)?;
            let before = found.len;
            for behind in behind_calls(image.range(at, bytes)?) {
                let after = base + at as usize + behind;
                *found.of.get_mut(found.len)? = (after, after + 1);
                found.len += 1;
            }
            if found.len == before {
                return None;
            }
        }
        found.of[..found.len].sort_unstable();
        Some(found)
    }
}

/// Where in code the instruction ends, or what looks like it: how far from its start.
pub fn behind_calls(code: &[u8]) -> impl Iterator<Item = usize> {
    pairs(code, |first, second| (first == SYSCALL[0]) & (second == SYSCALL[1])).map(|at| at + SYSCALL.len())
}

/// What the dynamic linker's `mmap` and `mprotect` are made of: the call's number, and the instruction.
const LINKERS: [[u8; 7]; 2] = [linkers(nr::MMAP), linkers(nr::MPROTECT)];

const fn linkers(nr: usize) -> [u8; 7] {
    [0xb8, nr as u8, 0, 0, 0, SYSCALL[0], SYSCALL[1]]
}

/// The same of a dynamic linker whose code lies in this range: where it maps and protects memory. None, if there are others than expected.
pub fn of_linker((start, end): (usize, usize)) -> [(usize, usize); LINKER_CALLS] {
    let none = [(0, 0); LINKER_CALLS];
    if start == 0 {
        return none;
    }
    // SAFETY: its code is mapped there, readable, until the process ends, and nobody changes it.
    let code = unsafe { slice::from_raw_parts(start as *const u8, end - start) };
    let (mut found, mut len) = (none, 0);
    for behind in behind_calls(code).filter(|&behind| LINKERS.iter().any(|call| code[..behind].ends_with(call))) {
        let after = start + behind;
        let Some(place) = found.get_mut(len) else { return none };
        (*place, len) = ((after, after + 1), len + 1);
    }
    found
}

/// The allocator's and the linker's, ascending; first come as many ranges of nothing as there is room for more.
///
/// # Panics
///
/// Panics if there are more than there is room for.
pub fn with_linkers(heap: &[(usize, usize)], linker: &[(usize, usize)]) -> [(usize, usize); HEAP_CALLS + LINKER_CALLS] {
    let mut all = [(0, 0); HEAP_CALLS + LINKER_CALLS];
    all[..heap.len()].copy_from_slice(heap);
    all[heap.len()..heap.len() + linker.len()].copy_from_slice(linker);
    all.sort_unstable();
    all
}

/// Where an entry of a table is; anywhere, where the numbers are nonsense.
fn entry(table: u64, index: u64, bytes: usize) -> u64 {
    table.wrapping_add(index.wrapping_mul(bytes as u64))
}

/// A library as it lies in memory.
struct Image<'a> {
    bytes: &'a [u8],
    base: u64,
}

impl Image<'_> {
    fn range(&self, at: u64, bytes: u64) -> Option<&[u8]> {
        self.bytes.get(at as usize..at.checked_add(bytes)? as usize)
    }

    fn number<const N: usize>(&self, at: u64) -> Option<u64> {
        let mut word = [0; 8];
        word[..N].copy_from_slice(self.range(at, N as u64)?);
        Some(u64::from_le_bytes(word))
    }

    /// Where a table of the dynamic section begins. The loader has made its offset an address.
    fn table(&self, dynamic: u64, tag: u64) -> Option<u64> {
        let mut at = dynamic;
        loop {
            match self.number::<8>(at)? {
                0 => return None,
                found if found == tag => break,
                _ => at = entry(at, 1, 16),
            }
        }
        let value = self.number::<8>(entry(at, 1, 8))?;
        Some(value.checked_sub(self.base).unwrap_or(value))
    }

    /// A function that the library gives to others: where it begins, and its length.
    fn function(&self, name: &[u8]) -> Option<(u64, u64)> {
        if self.range(0, 6)? != [0x7f, b'E', b'L', b'F', 2, 1] {
            return None;
        }
        let (headers, count) = (self.number::<8>(32)?, self.number::<2>(56)?);
        let header = |i| entry(headers, i, PROGRAM_HEADER_BYTES);
        let dynamic = (0..count).find(|&i| self.number::<4>(header(i)) == Some(u64::from(PT_DYNAMIC)))?;
        let dynamic = self.number::<8>(entry(header(dynamic), 1, 16))?;
        let [names, symbols, hashes] = [DT_STRTAB, DT_SYMTAB, DT_GNU_HASH].map(|tag| self.table(dynamic, tag));
        let (names, symbols, hashes) = (names?, symbols?, hashes?);

        // "How To Write Shared Libraries" (Ulrich Drepper, 2011) has the hash, and what its table is like.
        let hash = name.iter().fold(5381u32, |h, &c| h.wrapping_mul(33).wrapping_add(c.into()));
        let [buckets, first, blooms] = [0, 1, 2].map(|i| self.number::<4>(entry(hashes, i, 4)));
        let (buckets, first) = (buckets?, first?);
        let bucket = entry(entry(hashes, 1, 16), blooms?, 8);
        let chain = entry(bucket, buckets, 4);
        let head = self.number::<4>(entry(bucket, u64::from(hash).checked_rem(buckets)?, 4))?;
        for symbol in (head..).take(CHAIN_MAX) {
            let here = self.number::<4>(entry(chain, symbol.checked_sub(first)?, 4))?;
            let symbol = entry(symbols, symbol, SYMBOL_BYTES);
            let at = entry(names, self.number::<4>(symbol)?, 1);
            let is_it = here | 1 == u64::from(hash | 1)
                && self.range(at, name.len() as u64)? == name
                && self.number::<1>(entry(at, name.len() as u64, 1))? == 0;
            if is_it {
                let bytes = self.number::<8>(entry(symbol, 1, 16))?;
                return (bytes <= FUNCTION_MAX_BYTES).then_some((self.number::<8>(entry(symbol, 1, 8))?, bytes));
            }
            if here & 1 == 1 {
                return None;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code;

    unsafe extern "C" {
        fn mmap();
        fn brk();
        fn syscall();
    }

    #[test]
    fn calls_of_this_c_library_are_where_its_functions_are() {
        let found = HeapCalls::find(code::find().libc_file).expect("the tests run with glibc");
        let starts = [mmap as *const (), brk as *const (), syscall as *const ()].map(|function| function as usize);
        assert!((3..=HEAP_CALLS).contains(&found.get().len()));
        for &(after, end) in found.get() {
            assert_eq!(end, after + 1);
            assert!(starts.iter().any(|start| (start + 2..start + 512).contains(&after)), "{after:x} {starts:x?}");
            // SAFETY: two bytes of the C library's code.
            assert_eq!(unsafe { *((after - 2) as *const [u8; 2]) }, SYSCALL);
        }
        for start in starts {
            assert!(found.get().iter().any(|r| (start..start + 512).contains(&r.0)), "one in each");
        }
    }

    #[test]
    fn what_is_no_library_has_none() {
        assert!(HeapCalls::find((0, 0)).is_none());
        assert!(HeapCalls::of_image(&[0; 4096], 0x1000).is_none());
        let mut cut = *b"\x7fELF\x02\x01xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";
        assert!(HeapCalls::of_image(&cut, 0x1000).is_none());
        cut[6..].fill(0xff);
        assert!(HeapCalls::of_image(&cut, 0x1000).is_none());
    }

    #[test]
    fn the_linkers_calls_are_found_in_its_code() {
        let mut code = vec![0x90u8; 4096];
        let at = code.as_ptr() as usize;
        let of = |code: &[u8]| of_linker((code.as_ptr() as usize, code.as_ptr() as usize + code.len()));
        assert_eq!((of(&code), of_linker((0, 0))), ([(0, 0); LINKER_CALLS], [(0, 0); LINKER_CALLS]));
        code[100..107].copy_from_slice(&LINKERS[0]);
        let found = of(&code);
        assert_eq!(found[0], (at + 107, at + 108));
        assert_eq!(found[1..], [(0, 0); LINKER_CALLS - 1]);
        let all = with_linkers(&[(at, at + 1), (at + 1000, at + 1001)], &found);
        assert!(all.is_sorted() && all.ends_with(&[(at, at + 1), found[0], (at + 1000, at + 1001)]));
        (0..=LINKER_CALLS).for_each(|i| code[200 + 10 * i..][..7].copy_from_slice(&LINKERS[i % 2]));
        assert_eq!(of(&code), [(0, 0); LINKER_CALLS], "another linker than is known");
        assert!(of_linker(crate::code::find().linker)[1].0 > 0, "those of this process");
    }
}
