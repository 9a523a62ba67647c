//! The acting halves of a volume's life, cluster side.
