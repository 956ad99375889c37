//! Memory that a process has no use for once it only waits.

use nix::libc;

unsafe extern "C" {
    // Where the program begins, and where its instructions end (end(3)); the linker defines both.
    static __executable_start: u8;
    static etext: u8;
}

/// The smallest page of the machines that are served; where they are larger the kernel refuses what is not aligned.
const PAGE: usize = 4096;

/// Gives back what was needed to get here and is not for waiting: free pages of the heap (malloc_trim(3)), and the program's
/// own pages that this process has mapped. Those are shared, never written, and stay in the page cache: they are mapped again,
/// without a read, when they are next used.
///
/// Nothing depends on it, so that a kernel which refuses it is left to.
pub fn release_start_pages() {
    let start = (&raw const __executable_start).cast_mut();
    let length = ((&raw const etext).addr() & !(PAGE - 1)).saturating_sub(start.addr());
    // SAFETY: from the program's start to the end of its instructions lie the segments of the file that are read-only from
    // the first on: relocations, constants, instructions. What the loader's work makes of others, and all that is written, lies
    // behind. Of a private mapping of a file that was not written the same bytes come back (madvise(2), MADV_DONTNEED).
    unsafe { libc::madvise(start.cast(), length, libc::MADV_DONTNEED) };
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes the heap's own lock and returns only what nothing owns.
    unsafe {
        libc::malloc_trim(0)
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is resident of the mappings that hold the program, in KiB: instructions alone, and pages that were written.
    fn resident() -> (u64, u64) {
        let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let (mut of_text, mut instructions, mut written) = (false, 0, 0);
        for line in text.lines() {
            let number = |rest: &str| rest.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
            if line.split(' ').nth(1).is_some_and(|mode| mode.len() == 4 && mode.ends_with('p')) {
                of_text = line.contains(" r-xp ") && line.contains('/');
            } else if let Some(rest) = line.strip_prefix("Rss:").filter(|_| of_text) {
                instructions += number(rest);
            } else if let Some(rest) = line.strip_prefix("Anonymous:").filter(|_| of_text) {
                written += number(rest);
            }
        }
        (instructions, written)
    }

    #[test]
    fn the_programs_pages_are_given_back_and_come_again() {
        let (before, written) = resident();
        assert_eq!(written, 0);
        release_start_pages();
        let (after, _) = resident();
        assert!(after < before / 2, "{after} of {before} KiB are still mapped");
        // What was given back is the same when it is used again.
        assert_eq!("constant".to_uppercase(), "CONSTANT");
    }
}
