//! Fuzzing of what Orlop reads from outside: requests, credentials, and the files of the store.
//!
//! # The engine
//! A loop of our own on the stable toolchain: inputs are made by grammar (the server's own tables of types drive it) or by
//! changing an input that was interesting, and an input is interesting when it is answered in a way that was not seen
//! before ([`run::Outcome::signatures`]). Every case follows from a seed and a number, so a crash needs no recording to come again.
//!
//! # What is checked
//! 1. No panic, on any task; no stack overflow on the small stack that server threads have.
//! 2. Work per case is bounded, in processor time of the thread that does it: what else the machine does plays no role.
//! 3. Memory per case is bounded by the size of its input, and a case that is run again leaves no more behind than before.
//! 4. An answer is never 500 (see [`run::Finding`]): an input that the server cannot take is refused, not failed at.
//! 5. Work grows no faster than the request ([`growth`]), for every list, map and text of every type.
//!
//! # Not here
//! Whether answers are right: the differential suite judges that.

pub mod case;
pub mod generate;
pub mod growth;
pub mod http;
pub mod meter;
pub mod random;
pub mod run;
pub mod store;
