use proptest::collection::vec;
use proptest::prelude::*;
use tokio::io::AsyncReadExt as _;

use super::frames::{MAX_FRAME, PREFACE, Rewriter};
use super::*;

const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// A frame on stream 1.
fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let [_, high, middle, low] = (payload.len() as u32).to_be_bytes();
    let mut bytes = vec![high, middle, low, kind, flags, 0, 0, 0, 1];
    bytes.extend_from_slice(payload);
    bytes
}

fn headers(block: &[u8]) -> Vec<u8> {
    frame(1, END_HEADERS, block)
}

fn connection(frames: &[Vec<u8>]) -> Vec<u8> {
    [&PREFACE[..], &frame(4, 0, &[]), &frames.concat()].concat()
}

/// What the server reads when the client's bytes arrive in these pieces.
fn through(pieces: &[&[u8]]) -> Vec<u8> {
    let (mut rewriter, mut out) = (Rewriter::new(), Vec::new());
    for piece in pieces {
        rewriter.push(piece, &mut out);
    }
    rewriter.finish(&mut out);
    out
}

/// A raw string.
fn raw(text: &[u8]) -> Vec<u8> {
    coded(0, text)
}

fn huffman(text: &[u8]) -> Vec<u8> {
    coded(0x80, &super::huffman::encode(text))
}

fn coded(flag: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = integer(flag, 7, bytes.len());
    out.extend_from_slice(bytes);
    out
}

fn integer(first: u8, prefix: u8, value: usize) -> Vec<u8> {
    let most = (1_usize << prefix) - 1;
    if value < most {
        return vec![first | value as u8];
    }
    let (mut out, mut rest) = (vec![first | most as u8], value - most);
    while rest >= 0x80 {
        out.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
    out
}

/// `:method: POST`, `:scheme: http`, all of them indexed.
const INDEXED: [u8; 2] = [0x83, 0x86];

/// How a literal can enter the dynamic table: with indexing, without, never.
const MODES: [u8; 3] = [0x40, 0x00, 0x10];

fn authority_block(mode: u8, value: &[u8]) -> Vec<u8> {
    [&INDEXED[..], &[mode | 1], value, &raw_field(b"te", b"trailers")].concat()
}

fn raw_field(name: &[u8], value: &[u8]) -> Vec<u8> {
    [&[0x40][..], &raw(name), &raw(value)].concat()
}

#[test]
fn a_path_becomes_a_name_of_the_same_length() {
    for (sent, repaired) in [
        (&b"/csi/csi.sock"[..], &b"-csi-csi.sock"[..]),
        (b"%2Fcsi%2Fcsi.sock", b"-2Fcsi-2Fcsi.sock"),
        (b"/", b"-"),
        (b"a b", b"a-b"),
        (b"/\xc3\xa9.sock", b"---.sock"),
    ] {
        for mode in MODES {
            for value in [raw(sent), huffman(sent)] {
                let input = connection(&[headers(&authority_block(mode, &value)), frame(0, 1, b"body")]);
                let wanted = connection(&[headers(&authority_block(mode, &raw(repaired))), frame(0, 1, b"body")]);
                assert_eq!(through(&[&input]), wanted, "{:?} in mode {mode:#x}", String::from_utf8_lossy(sent));
            }
        }
    }
}

#[test]
fn the_name_may_be_spelled_out() {
    for name in [raw(b":authority"), huffman(b":authority")] {
        let block = |value: &[u8]| [&INDEXED[..], &[0x40], &name, &raw(value)].concat();
        let input = connection(&[headers(&block(b"/csi.sock"))]);
        assert_eq!(through(&[&input]), connection(&[headers(&block(b"-csi.sock"))]));
    }
}

#[test]
fn padding_and_priority_stay_around_the_block() {
    let rows: [(u8, &[u8], &[u8]); 3] = [
        (PADDED, &[3], &[0, 0, 0]),
        (PRIORITY, &[0x80, 0, 0, 0, 200], &[]),
        (PADDED | PRIORITY, &[2, 0, 0, 0, 0, 16], &[0, 0]),
    ];
    for (flags, front, padding) in rows {
        let frame_of = |value: &[u8]| {
            let payload = [front, &authority_block(0x40, &raw(value)), padding].concat();
            frame(1, END_HEADERS | flags, &payload)
        };
        let long = [b"/".as_slice(), &[b'a'; 300]].concat();
        let fixed = [b"-".as_slice(), &[b'a'; 300]].concat();
        assert_eq!(through(&[&connection(&[frame_of(&long)])]), connection(&[frame_of(&fixed)]));
    }
}

#[test]
fn valid_authorities_and_other_headers_are_not_touched() {
    let path_elsewhere = raw_field(b"x-path", b"/csi/csi.sock");
    let mut same = vec![connection(&[headers(&path_elsewhere)])];
    for valid in ["localhost", "localhost:80", "[::1]:80", "%2Frun%2Fdriver@reg.sock", ""] {
        for value in [raw(valid.as_bytes()), huffman(valid.as_bytes())] {
            same.push(connection(&[headers(&authority_block(0x40, &value))]));
        }
    }
    for input in same {
        assert_eq!(through(&[&input]), input);
    }
}

#[test]
fn what_we_do_not_repair_passes_untouched() {
    let bad = authority_block(0x40, &raw(b"/csi/csi.sock"));
    let cut = [frame(1, 0, &bad[..5]), frame(9, END_HEADERS, &bad[5..])];
    let mut too_long = bad.clone();
    too_long.resize(MAX_FRAME + 1, 0x83);
    let pads_beyond_its_end = [&[200][..], &bad].concat();
    let truncated = &bad[..bad.len() - 3];
    for input in [
        connection(&cut),
        connection(&[headers(&too_long)]),
        connection(&[frame(1, END_HEADERS | PADDED, &pads_beyond_its_end)]),
        connection(&[headers(truncated)]),
        connection(&[frame(0, 0, &headers(&bad))]),
        [b"GET / HTTP/1.1\r\n\r\n".as_slice(), &headers(&bad)].concat(),
        [b"PRI * HTTP/2.1\r\n\r\n".as_slice(), &headers(&bad)].concat(),
        connection(&[headers(&bad)])[..40].to_vec(),
    ] {
        assert_eq!(through(&[&input]), input);
    }
}

#[test]
fn frames_after_an_untouched_block_are_still_understood() {
    let bad = authority_block(0x10, &raw(b"/csi.sock"));
    let good = authority_block(0x10, &raw(b"-csi.sock"));
    let cut = [frame(1, 0, &bad[..5]), frame(9, END_HEADERS, &bad[5..])];
    let input = connection(&[cut.concat(), headers(&bad)]);
    assert_eq!(through(&[&input]), connection(&[cut.concat(), headers(&good)]));
}

#[test]
fn a_repair_that_would_make_the_frame_too_long_is_not_made() {
    // `a` takes five bits in Huffman's code: the raw text is longer than the frame may be.
    let mut text = vec![b'a'; MAX_FRAME + 100];
    text[0] = b'/';
    let input = connection(&[headers(&authority_block(0x00, &huffman(&text)))]);
    assert_eq!(through(&[&input]), input);
}

#[tokio::test]
async fn a_reader_sees_the_repaired_bytes_and_then_the_end() {
    let input = connection(&[headers(&authority_block(0x40, &huffman(b"/csi/csi.sock"))), frame(0, 1, &[7; 20_000])]);
    let wanted = connection(&[headers(&authority_block(0x40, &raw(b"-csi-csi.sock"))), frame(0, 1, &[7; 20_000])]);
    let mut io = TolerantIo::new(std::io::Cursor::new(input));
    let mut first = [0; 5];
    io.read_exact(&mut first).await.unwrap();
    let mut rest = Vec::new();
    io.read_to_end(&mut rest).await.unwrap();
    assert_eq!([&first[..], &rest].concat(), wanted);
    assert_eq!(io.read(&mut first).await.unwrap(), 0);
}

/// Cuts `bytes` at the given places, whatever they are.
fn pieces<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    places.extend([0, bytes.len()]);
    places.sort_unstable();
    places.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

fn any_string() -> impl Strategy<Value = Vec<u8>> {
    (any::<bool>(), vec(any::<u8>(), 0..40)).prop_map(|(code, text)| if code { huffman(&text) } else { raw(&text) })
}

/// A field that is not `:authority`, or is it with a good value.
fn harmless_field() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        (1_usize..200).prop_map(|index| integer(0x80, 7, index)),
        (0_usize..5000).prop_map(|size| integer(0x20, 5, size)),
        (0..3_usize, 2_usize..200, any_string()).prop_map(|(mode, index, value)| {
            let prefix = if mode == 0 { 6 } else { 4 };
            [integer(MODES[mode], prefix, index), value].concat()
        }),
        (0..3_usize, "[a-z-]{1,12}", any_string()).prop_map(|(mode, name, value)| [
            &[MODES[mode]][..],
            &raw(name.as_bytes()),
            &value
        ]
        .concat()),
        (0..3_usize, "[a-z0-9.]{1,20}(:[0-9]{1,4})?").prop_map(|(mode, host)| [
            &[MODES[mode] | 1][..],
            &huffman(host.as_bytes())
        ]
        .concat()),
    ]
}

/// Frames of every type in which no header block has a bad authority.
fn harmless_frame() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        (any::<u8>().prop_filter("not HEADERS", |kind| *kind != 1), any::<u8>(), vec(any::<u8>(), 0..300))
            .prop_map(|(kind, flags, payload)| frame(kind, flags, &payload)),
        vec(harmless_field(), 0..12).prop_map(|fields| headers(&fields.concat())),
        vec(any::<u8>(), 0..60).prop_map(|payload| frame(1, 0, &payload)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn streams_without_a_bad_authority_pass_byte_for_byte(
        frames in vec(harmless_frame(), 0..12),
        tail in vec(any::<u8>(), 0..8),
        cuts in vec(any::<usize>(), 0..20),
    ) {
        let input = [connection(&frames), tail].concat();
        prop_assert_eq!(through(&pieces(&input, &cuts)), input);
    }

    #[test]
    fn arbitrary_bytes_cause_no_panic_and_the_cuts_do_not_matter(
        has_preface in any::<bool>(),
        bytes in vec(any::<u8>(), 0..600),
        cuts in vec(any::<usize>(), 0..40),
    ) {
        let input = if has_preface { [&PREFACE[..], &bytes].concat() } else { bytes };
        let whole = through(&[&input]);
        prop_assert_eq!(&through(&pieces(&input, &cuts)), &whole);
        if !has_preface {
            prop_assert_eq!(&whole, &input);
        }
    }

    #[test]
    fn arbitrary_header_blocks_cause_no_panic_and_are_repaired_once(
        flags in any::<u8>(),
        block in vec(any::<u8>(), 0..80),
        bad in vec(any::<u8>(), 1..40),
        cuts in vec(any::<usize>(), 0..40),
    ) {
        let block = [&[0x41][..], &huffman(&bad), &block].concat();
        let input = connection(&[frame(1, flags | END_HEADERS, &block)]);
        let once = through(&pieces(&input, &cuts));
        prop_assert_eq!(&through(&[&once]), &once);
    }

    #[test]
    fn any_value_becomes_a_valid_authority_of_its_length(value in vec(any::<u8>(), 1..400)) {
        let out = through(&[&connection(&[headers(&authority_block(0x40, &raw(&value)))])]);
        let prefix = connection(&[headers(&INDEXED)]).len() + 1 + integer(0, 7, value.len()).len();
        let authority = &out[prefix..prefix + value.len()];
        prop_assert!(http::uri::Authority::try_from(authority).is_ok(), "{authority:?}");
        let suffix = raw_field(b"te", b"trailers");
        prop_assert_eq!(&out[prefix + value.len()..], &suffix[..]);
    }
}
