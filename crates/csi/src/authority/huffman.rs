//! Decoding of HPACK's Huffman code (RFC 7541, section 5.2 and appendix B).
//!
//! The code is canonical: symbols sorted by (code length, value) have consecutive codes. The lengths therefore say
//! everything, and the decoder is four small tables made from them at compile time. It goes bit by bit, which is fast
//! enough: it only ever reads one short header, and only where that header is not already in the dynamic table.

use super::hpack::Malformed;

/// The length in bits of the code of each byte, and last of the end-of-string symbol.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

const END_OF_STRING: u16 = 256;
const LONGEST: usize = 30;

/// The canonical code, indexed by code length.
struct Code {
    /// The first code of this length.
    first: [u32; LONGEST + 1],
    /// How many codes have this length.
    count: [u32; LONGEST + 1],
    /// Where in `symbols` those of this length begin.
    begin: [u32; LONGEST + 1],
    /// All symbols, sorted by length, then by value.
    symbols: [u16; LENGTHS.len()],
}

static CODE: Code = Code::from_lengths();

impl Code {
    const fn from_lengths() -> Self {
        let mut code = Self {
            first: [0; LONGEST + 1],
            count: [0; LONGEST + 1],
            begin: [0; LONGEST + 1],
            symbols: [0; LENGTHS.len()],
        };
        let (mut next, mut placed, mut length) = (0_u32, 0_usize, 1_usize);
        while length <= LONGEST {
            next <<= 1;
            code.first[length] = next;
            code.begin[length] = placed as u32;
            let mut symbol = 0;
            while symbol < LENGTHS.len() {
                if LENGTHS[symbol] as usize == length {
                    code.symbols[placed] = symbol as u16;
                    placed += 1;
                    next += 1;
                }
                symbol += 1;
            }
            code.count[length] = placed as u32 - code.begin[length];
            length += 1;
        }
        code
    }

    /// The symbol whose code is the `length` bits in `bits`, if those are a whole code.
    fn symbol(&self, bits: u32, length: usize) -> Option<u16> {
        let nth = bits.checked_sub(*self.first.get(length)?)?;
        if nth >= self.count[length] {
            return None;
        }
        self.symbols.get((self.begin[length] + nth) as usize).copied()
    }
}

/// Appends the text that `coded` stands for to `out`.
pub(super) fn decode(coded: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    let (mut bits, mut length) = (0_u32, 0_usize);
    for byte in coded {
        for shift in (0..8).rev() {
            bits = (bits << 1) | u32::from((byte >> shift) & 1);
            length += 1;
            match CODE.symbol(bits, length) {
                Some(END_OF_STRING) => return Err(Malformed),
                Some(symbol) => out.push(symbol as u8),
                None if length < LONGEST => continue,
                None => return Err(Malformed),
            }
            (bits, length) = (0, 0);
        }
    }
    // What is left must be padding: fewer than eight bits, all of them ones.
    if length < 8 && bits == (1 << length) - 1 { Ok(()) } else { Err(Malformed) }
}

/// Encodes `text`; the server side never needs to, but its tests do.
#[cfg(test)]
pub(super) fn encode(text: &[u8]) -> Vec<u8> {
    let code_of = |byte: u8| {
        let length = LENGTHS[byte as usize] as usize;
        let from = CODE.begin[length] as usize;
        let nth =
            CODE.symbols[from..].iter().position(|symbol| *symbol == u16::from(byte)).expect("every byte has a code");
        (CODE.first[length] + nth as u32, length)
    };
    let mut bits: Vec<bool> = Vec::new();
    for byte in text {
        let (code, length) = code_of(*byte);
        bits.extend((0..length).rev().map(|at| (code >> at) & 1 == 1));
    }
    bits.resize(bits.len().next_multiple_of(8), true);
    bits.chunks(8).map(|octet| octet.iter().fold(0, |byte, bit| (byte << 1) | u8::from(*bit))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(coded: &[u8]) -> Result<Vec<u8>, Malformed> {
        let mut out = Vec::new();
        decode(coded, &mut out).map(|()| out)
    }

    #[test]
    fn the_examples_of_rfc_7541_appendix_c_are_read() {
        let rows: [(&[u8], &str); 4] = [
            (&[0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff], "www.example.com"),
            (&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf], "no-cache"),
            (&[0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xb8, 0xe8, 0xb4, 0xbf], "custom-value"),
            (&[0xae, 0xc3, 0x77, 0x1a, 0x4b], "private"),
        ];
        for (coded, text) in rows {
            assert_eq!(decoded(coded).as_deref(), Ok(text.as_bytes()));
            assert_eq!(encode(text.as_bytes()), coded);
        }
    }

    #[test]
    fn every_byte_survives_a_round_trip() {
        for byte in 0..=u8::MAX {
            let text = [byte, b'/', byte];
            assert_eq!(decoded(&encode(&text)).as_deref(), Ok(&text[..]), "{byte}");
        }
    }

    #[test]
    fn a_code_that_is_cut_or_padded_wrongly_is_refused() {
        assert_eq!(decoded(&[0xff]), Err(Malformed), "eight bits of padding");
        assert_eq!(decoded(&[0b0000_0000, 0b0000_0000]), Err(Malformed), "padding of zeros");
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xff]), Err(Malformed), "the end-of-string symbol");
        assert_eq!(decoded(&[]).as_deref(), Ok(&[][..]));
    }
}
