//! The client's half of an HTTP/2 connection as a stream of frames (RFC 9113, section 4).
//!
//! [`Rewriter`] is a machine without I/O: bytes go in with [`Rewriter::push`] in pieces of any size, and come out as
//! soon as nothing can change them any more. Only a whole HEADERS frame and a frame's own nine-byte header are ever
//! held back, and a server cannot act on a part of either.

use super::hpack::{self, Outcome};

/// What every HTTP/2 client sends first.
pub(super) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The largest frame a client may send unless the server allows more, which ours does not (RFC 9113, section 4.2).
/// It bounds what is held back.
pub(super) const MAX_FRAME: usize = 16 * 1024;

const HEADER: usize = 9;
const HEADERS: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// Stream dependency and weight, in a HEADERS frame with the flag PRIORITY.
const PRIORITY_FIELDS: usize = 5;

enum State {
    /// The first `seen` bytes were those of [`PREFACE`].
    Preface { seen: usize },
    /// `held` collects the header of the next frame.
    FrameHeader,
    /// The rest of a frame that is of no interest.
    Pass { left: usize },
    /// `held` collects a HEADERS frame of `whole` bytes, its header included.
    Collect { whole: usize },
    /// Not HTTP/2: everything passes.
    Opaque,
}

/// Repairs `:authority` in the client's bytes.
pub(super) struct Rewriter {
    state: State,
    held: Vec<u8>,
    scratch: Vec<u8>,
}

impl Rewriter {
    pub(super) fn new() -> Self {
        Self { state: State::Preface { seen: 0 }, held: Vec::new(), scratch: Vec::new() }
    }

    /// Says whether all further bytes pass unchanged, so that the caller need not bring them here.
    pub(super) fn is_opaque(&self) -> bool {
        matches!(self.state, State::Opaque)
    }

    /// Takes the next bytes of the client and appends to `out` what the server may read now.
    pub(super) fn push(&mut self, mut input: &[u8], out: &mut Vec<u8>) {
        while !input.is_empty() {
            let taken = match self.state {
                State::Preface { seen } => self.preface(seen, input, out),
                State::FrameHeader => self.frame_header(input, out),
                State::Pass { left } => self.pass(left, input, out),
                State::Collect { whole } => self.collect(whole, input, out),
                State::Opaque => {
                    out.extend_from_slice(input);
                    input.len()
                }
            };
            input = &input[taken..];
        }
    }

    /// The client sends no more: gives out what was held back, unchanged.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.held);
        self.state = State::Opaque;
    }

    fn preface(&mut self, seen: usize, input: &[u8], out: &mut Vec<u8>) -> usize {
        let wanted = &PREFACE[seen..];
        let taken = wanted.len().min(input.len());
        if input[..taken] != wanted[..taken] {
            self.state = State::Opaque;
            return 0;
        }
        out.extend_from_slice(&input[..taken]);
        let seen = seen + taken;
        self.state = if seen == PREFACE.len() { State::FrameHeader } else { State::Preface { seen } };
        taken
    }

    fn frame_header(&mut self, input: &[u8], out: &mut Vec<u8>) -> usize {
        let taken = self.hold(HEADER, input);
        let &[high, middle, low, kind, flags, ..] = self.held.as_slice() else { return taken };
        if self.held.len() < HEADER {
            return taken;
        }
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        // A block that goes on in CONTINUATION frames passes untouched: no client cuts a request as small as ours.
        if kind == HEADERS && flags & END_HEADERS != 0 && (1..=MAX_FRAME).contains(&length) {
            self.state = State::Collect { whole: HEADER + length };
        } else {
            out.append(&mut self.held);
            self.state = if length == 0 { State::FrameHeader } else { State::Pass { left: length } };
        }
        taken
    }

    fn pass(&mut self, left: usize, input: &[u8], out: &mut Vec<u8>) -> usize {
        let taken = left.min(input.len());
        out.extend_from_slice(&input[..taken]);
        self.state = if taken == left { State::FrameHeader } else { State::Pass { left: left - taken } };
        taken
    }

    fn collect(&mut self, whole: usize, input: &[u8], out: &mut Vec<u8>) -> usize {
        let taken = self.hold(whole, input);
        if self.held.len() == whole {
            self.give_headers(out);
            self.held.clear();
            self.state = State::FrameHeader;
        }
        taken
    }

    /// Moves bytes from `input` to `held` until that has `whole` of them.
    fn hold(&mut self, whole: usize, input: &[u8]) -> usize {
        let taken = whole.saturating_sub(self.held.len()).min(input.len());
        self.held.extend_from_slice(&input[..taken]);
        taken
    }

    /// Appends the HEADERS frame in `held` to `out`, repaired if it needs that and can be.
    fn give_headers(&mut self, out: &mut Vec<u8>) {
        let start = out.len();
        if !self.try_repair(out) {
            out.truncate(start);
            out.extend_from_slice(&self.held);
        }
    }

    /// Writes the repaired frame, or returns false and leaves `out` with rubbish at its end.
    fn try_repair(&mut self, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let Some((front, block, padding)) = split_headers(&self.held) else { return false };
        out.extend_from_slice(front);
        if hpack::rewrite(block, &mut self.scratch, out) != Ok(Outcome::Repaired) {
            return false;
        }
        out.extend_from_slice(padding);
        let length = out.len() - start - HEADER;
        // The text may be longer without its Huffman code. A frame too long for the server would end the connection
        // instead of the one request.
        if length > MAX_FRAME {
            return false;
        }
        let [_, high, middle, low] = (length as u32).to_be_bytes();
        out[start..start + 3].copy_from_slice(&[high, middle, low]);
        true
    }
}

/// Splits a HEADERS frame into what precedes the header block, the block, and the padding.
fn split_headers(frame: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let flags = *frame.get(4)?;
    let mut front = HEADER;
    let mut padding = 0;
    if flags & PADDED != 0 {
        padding = usize::from(*frame.get(front)?);
        front += 1;
    }
    if flags & PRIORITY != 0 {
        front += PRIORITY_FIELDS;
    }
    let end = frame.len().checked_sub(padding)?;
    let block = frame.get(front..end)?;
    Some((&frame[..front], block, &frame[end..]))
}
