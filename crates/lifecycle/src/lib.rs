//! The decisions of a volume's life: pure functions from what was observed to what to do, with the reason.
