//! A number for how structures lie in memory: equal where two builds agree about them, and hardly ever where they do not.
//!
//! All of it runs while the crate is compiled.

/// The hash of nothing (FNV-1a).
pub const START: u64 = 0xcbf2_9ce4_8422_2325;

const fn byte(hash: u64, byte: u8) -> u64 {
    (hash ^ byte as u64).wrapping_mul(0x0000_0100_0000_01b3)
}

/// Goes on with a number.
pub const fn number(mut hash: u64, n: u64) -> u64 {
    let (bytes, mut i) = (n.to_le_bytes(), 0);
    while i < bytes.len() {
        hash = byte(hash, bytes[i]);
        i += 1;
    }
    hash
}

/// Goes on with a text and its length.
pub const fn text(hash: u64, text: &str) -> u64 {
    let (bytes, mut i) = (text.as_bytes(), 0);
    let mut hash = number(hash, bytes.len() as u64);
    while i < bytes.len() {
        hash = byte(hash, bytes[i]);
        i += 1;
    }
    hash
}

/// Goes on with a list of texts.
pub const fn texts(hash: u64, list: &[&str]) -> u64 {
    let (mut hash, mut i) = (number(hash, list.len() as u64), 0);
    while i < list.len() {
        hash = text(hash, list[i]);
        i += 1;
    }
    hash
}

/// 32 bits of a hash.
pub const fn short(hash: u64) -> u32 {
    (hash >> 32) as u32 ^ hash as u32
}

/// Bytes of the field that a function gives of a structure.
pub const fn field_bytes<T, F>(_: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

/// Goes on with a structure: its size, and name, offset and size of each of its fields. One that is left out does not
/// compile.
macro_rules! layout {
    ($hash:expr, $type:ident { $($field:ident),* $(,)? }) => {{
        const _: fn(&$type) = |all| {
            let $type { $($field: _),* } = all;
        };
        let mut hash = $crate::fingerprint::text($hash, stringify!($type));
        hash = $crate::fingerprint::number(hash, size_of::<$type>() as u64);
        $(
            hash = $crate::fingerprint::text(hash, stringify!($field));
            hash = $crate::fingerprint::number(hash, core::mem::offset_of!($type, $field) as u64);
            hash = $crate::fingerprint::number(hash, {
                $crate::fingerprint::field_bytes(|all: &$type| &all.$field) as u64
            });
        )*
        hash
    }};
}
pub(crate) use layout;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_otherwise_has_another_number() {
        mod first {
            #[repr(C)]
            pub struct Record {
                pub a: u32,
                pub b: u32,
                pub c: u64,
            }
            pub const LAYOUT: u64 = super::layout!(super::START, Record { a, b, c });
        }
        mod same {
            #[repr(C)]
            pub struct Record {
                pub a: u32,
                pub b: u32,
                pub c: u64,
            }
            pub const LAYOUT: u64 = super::layout!(super::START, Record { a, b, c });
        }
        mod renamed {
            #[repr(C)]
            pub struct Record {
                pub a: u32,
                pub d: u32,
                pub c: u64,
            }
            pub const LAYOUT: u64 = super::layout!(super::START, Record { a, d, c });
        }
        mod resized {
            #[repr(C)]
            pub struct Record {
                pub a: u32,
                pub b: u16,
                pub c: u64,
            }
            pub const LAYOUT: u64 = super::layout!(super::START, Record { a, b, c });
        }
        mod reordered {
            #[repr(C)]
            pub struct Record {
                pub b: u32,
                pub a: u32,
                pub c: u64,
            }
            pub const LAYOUT: u64 = super::layout!(super::START, Record { a, b, c });
        }
        mod longer {
            #[repr(C)]
            pub struct Record {
                pub a: u32,
                pub b: u32,
                pub c: [u64; 2],
            }
            pub const LAYOUT: u64 = super::layout!(super::START, Record { a, b, c });
        }
        assert_eq!(first::LAYOUT, same::LAYOUT);
        for other in [renamed::LAYOUT, resized::LAYOUT, reordered::LAYOUT, longer::LAYOUT] {
            assert_ne!(first::LAYOUT, other);
            assert_ne!(short(first::LAYOUT), short(other));
        }
    }

    #[test]
    fn texts_do_not_run_into_each_other() {
        let all = [
            texts(START, &["ab", "c"]),
            texts(START, &["a", "bc"]),
            texts(START, &["abc"]),
            texts(START, &["ab", "c", ""]),
            texts(START, &["c", "ab"]),
            texts(START, &[]),
        ];
        for (i, a) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|b| a != b && short(*a) != short(*b)), "{i}");
        }
    }
}
