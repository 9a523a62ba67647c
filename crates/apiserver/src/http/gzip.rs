//! Compression of long answers, for clients that offer to read it: as little work as possible, because the network here is
//! a loopback.

use std::io::{self, Write as _};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::body::Pieces;

/// Answers up to this long stay as they are.
pub(super) const FROM: usize = 128 * 1024;
/// Compressed pieces are sent when they are about this large.
const PIECE: usize = 32 * 1024;

/// Whether an `Accept-Encoding` header offers gzip.
pub(super) fn is_offered(accept_encoding: &str) -> bool {
    accept_encoding.split(',').any(is_gzip)
}

/// Whether one offer is gzip, and not with a weight of zero.
fn is_gzip(offer: &str) -> bool {
    let mut parts = offer.split(';').map(str::trim);
    let refused = |part: &str| part.strip_prefix("q=").is_some_and(|q| q.parse::<f32>().is_ok_and(|q| q == 0.0));
    parts.next() == Some("gzip") && !parts.any(refused)
}

/// The same text, compressed while it is sent.
pub(super) struct Compressed {
    pieces: Pieces,
    /// None behind the end.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl Compressed {
    pub(super) fn new(pieces: Pieces) -> Self {
        Self { pieces, encoder: Some(GzEncoder::new(Vec::with_capacity(PIECE * 2), Compression::fast())) }
    }

    fn advance(&mut self) -> io::Result<Option<Bytes>> {
        let Some(encoder) = &mut self.encoder else { return Ok(None) };
        while encoder.get_ref().len() < PIECE {
            let Some(piece) = self.pieces.next() else {
                let last = self.encoder.take().map(GzEncoder::finish).transpose()?;
                return Ok(last.map(Bytes::from));
            };
            encoder.write_all(&piece)?;
        }
        Ok(Some(std::mem::replace(encoder.get_mut(), Vec::with_capacity(PIECE * 2)).into()))
    }
}

impl Iterator for Compressed {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        // Writing to memory does not fail. If it ever did, the text would end early, and its checksum tells the client.
        self.advance().ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn pieces_come_out_as_one_text() {
        let pieces: Vec<Bytes> = (0..50_u32).map(|number| Bytes::from(number.to_string().repeat(9_000))).collect();
        let text = pieces.concat();
        let compressed = Compressed::new(Box::new(pieces.into_iter())).collect::<Vec<_>>().concat();
        let mut read = Vec::new();
        flate2::read::GzDecoder::new(&*compressed).read_to_end(&mut read).expect("good gzip");
        assert!(read == text && compressed.len() < text.len());
    }

    #[test]
    fn an_offer_with_no_weight_is_none() {
        assert!(is_offered("deflate, gzip;q=0.5") && is_offered("gzip"));
        assert!(!is_offered("gzip;q=0") && !is_offered("") && !is_offered("br"));
    }
}
