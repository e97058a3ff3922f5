//! Looking through code for what is rare in it. Processes do that when they start, and before their second thread: through some hundred KiB
//! to a few MiB. So most is gone through by as many bytes at a time as the processor compares at once.

/// Where two bytes stand side by side for which `is_one` says so: how far the first is from the start of the code. It is asked of bytes that are
/// not there for the answer's sake, so it should be a few comparisons without branches.
pub fn pairs(code: &[u8], is_one: impl Fn(u8, u8) -> bool + Copy) -> impl Iterator<Item = usize> {
    const STEP_BYTES: usize = 64;
    let (firsts, seconds) = (code, code.get(1..).unwrap_or_default());
    // The last one has no whole step behind it.
    let whole = seconds.len() / STEP_BYTES;
    let (steps, behind) = (firsts.as_chunks::<STEP_BYTES>().0, seconds.as_chunks::<STEP_BYTES>().0);
    let has_any = move |step: &usize| {
        let (first, second) = (&steps[*step], &behind[*step]);
        (0..STEP_BYTES).fold(0u8, |any, i| any | u8::from(is_one(first[i], second[i]))) != 0
    };
    let starts = (0..whole).filter(has_any).map(|step| step * STEP_BYTES..(step + 1) * STEP_BYTES);
    let rest = whole * STEP_BYTES..seconds.len();
    starts.chain([rest]).flatten().filter(move |&at| is_one(firsts[at], seconds[at]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: [u8; 2] = [0x0f, 0x05];

    #[test]
    fn each_pair_is_found_wherever_it_stands() {
        let found = |code: &[u8]| pairs(code, |a, b| (a == ONE[0]) & (b == ONE[1])).collect::<Vec<_>>();
        let plain = |code: &[u8]| -> Vec<usize> {
            code.windows(2).enumerate().filter(|(_, two)| *two == ONE).map(|(i, _)| i).collect()
        };
        // Few values, so that there are many; and each place about the borders of steps.
        let few = [0x0f, 0x05, 0x90, 0x0f];
        let mut random = 1u32;
        let mut next = || {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            few[(random >> 24) as usize % few.len()]
        };
        let code: Vec<u8> = (0..5000).map(|_| next()).collect();
        for bytes in (0..300).chain([1000, 5000]) {
            assert_eq!(found(&code[..bytes]), plain(&code[..bytes]), "{bytes}");
        }
        assert!(found(&code).len() > 100);
        for at in 0..200 {
            let mut code = [0x90; 202];
            code[at..at + 2].copy_from_slice(&ONE);
            assert_eq!(found(&code), [at]);
        }
    }
}
