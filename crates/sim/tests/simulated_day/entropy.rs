//! The keys of hash maps, the same in every run.
//!
//! kube's `Controller` takes its next object from a hash map and polls its reconciliations in the order of another, and
//! the keys of both come from the operating system, through the C library's `getrandom`. There is no way to hand them
//! in. A program may define that function itself, and then it is this one that the standard library calls. Everything
//! else in a world is seeded through its arguments; the product does not use kube's `Controller`, so only this test needs
//! this, and only this test has it: nothing else links this file.
//!
//! Whatever the other parts of this process ask for is predictable, too: keys made in it protect nothing.

#![allow(unsafe_code, reason = "defining a function of the C library is the only way to seed the maps of a dependency")]

use std::cell::Cell;

thread_local! {
    /// Every run has a fresh thread, and so begins here.
    static STATE: Cell<u64> = const { Cell::new(0) };
}

fn next_byte() -> u8 {
    let state = STATE.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    STATE.set(state);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed >> 56) as u8
}

/// As getrandom(2): fills the buffer and returns its length.
#[unsafe(no_mangle)]
extern "C" fn getrandom(buffer: *mut u8, length: usize, _flags: u32) -> isize {
    for at in 0..length {
        // SAFETY: the caller owns `length` writable bytes at `buffer`; that is the contract of getrandom(2).
        unsafe { buffer.add(at).write(next_byte()) };
    }
    isize::try_from(length).unwrap_or(isize::MAX)
}

#[test]
fn hash_maps_of_two_threads_have_one_order() {
    let order = || {
        let set: std::collections::HashSet<u32> = (0..100).collect();
        set.into_iter().collect::<Vec<_>>()
    };
    let in_thread = || std::thread::spawn(order).join().expect("hashing does not panic");
    assert_eq!(in_thread(), in_thread());
}
