//! Clients that send a socket path as `:authority` (LOCAL-0.9), on the wire.
//!
//! The client here writes HTTP/2 and HPACK by hand, as grpc-go does: headers enter the dynamic table once and are sent
//! as an index afterwards. The server is tonic, and the HPACK decoder under it is the judge of whether both tables
//! agree.

#![allow(clippy::unwrap_used, reason = "the whole file is tests")]

use std::collections::VecDeque;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use csi::v1::identity_server::{Identity, IdentityServer};
use csi::v1::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest, GetPluginInfoResponse,
    ProbeRequest, ProbeResponse,
};
use csi::{Endpoint, Listener, Peer, SocketMode};
use futures_util::stream;
use prost::Message as _;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

const PATH: &[u8] = b"/csi/csi.sock";
/// `PATH` in HPACK's Huffman code, as Go's encoder writes it.
const PATH_HUFFMAN: &[u8] = &[0x60, 0x88, 0x33, 0x04, 0x41, 0x97, 0x41, 0xc9, 0xd7];

/// Answers Probe and notes the header `x-nonce` of each call.
#[derive(Clone, Default)]
struct Plugin {
    nonces: Arc<Mutex<Vec<String>>>,
    peers: Arc<Mutex<Vec<Option<Peer>>>>,
}

#[tonic::async_trait]
impl Identity for Plugin {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn probe(&self, request: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        let nonce = request.metadata().get("x-nonce").and_then(|value| value.to_str().ok()).unwrap_or("none");
        self.nonces.lock().unwrap().push(nonce.to_owned());
        self.peers.lock().unwrap().push(request.extensions().get::<Peer>().copied());
        Ok(Response::new(ProbeResponse { ready: Some(true) }))
    }
}

/// A server on a socket in a directory of its own; it ends with the value.
struct Served {
    _directory: TempDir,
    path: PathBuf,
    plugin: Plugin,
    server: JoinHandle<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn place() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("csi.sock");
    (directory, path)
}

fn serve() -> Served {
    let (directory, path) = place();
    let plugin = Plugin::default();
    let listener = Listener::bind(&Endpoint::unix(&path).unwrap(), SocketMode::default()).unwrap();
    let router = Server::builder().add_service(IdentityServer::new(plugin.clone()));
    let server = tokio::spawn(async move { router.serve_with_incoming(listener.incoming()).await.unwrap() });
    Served { _directory: directory, path, plugin, server }
}

/// The same server on a plain socket.
fn serve_without_tolerance() -> Served {
    let (directory, path) = place();
    let plugin = Plugin::default();
    let listener = UnixListener::bind(&path).unwrap();
    let incoming = stream::unfold(listener, |listener| async move {
        let (stream, _) = listener.accept().await.unwrap();
        Some((Ok::<_, Infallible>(stream), listener))
    });
    let router = Server::builder().add_service(IdentityServer::new(plugin.clone()));
    let server = tokio::spawn(async move { router.serve_with_incoming(incoming).await.unwrap() });
    Served { _directory: directory, path, plugin, server }
}

/// An HPACK encoder that indexes every header it can, and its dynamic table.
#[derive(Default)]
struct Encoder {
    /// Newest first, as HPACK counts.
    table: VecDeque<(Vec<u8>, Vec<u8>)>,
}

impl Encoder {
    const TABLE_SIZE: usize = 4096;

    /// Appends one header; `wire_value` is the value as an HPACK string.
    fn header(&mut self, block: &mut Vec<u8>, name: &[u8], value: &[u8], wire_value: &[u8]) {
        if let Some(at) = self.table.iter().position(|(known, text)| known == name && text == value) {
            block.extend(integer(0x80, 7, 62 + at));
            return;
        }
        let static_name = match name {
            b":authority" => 1,
            b":path" => 4,
            _ => 0,
        };
        block.push(0x40 | static_name);
        if static_name == 0 {
            block.extend(raw(name));
        }
        block.extend_from_slice(wire_value);
        self.table.push_front((name.to_vec(), value.to_vec()));
        while self.size() > Self::TABLE_SIZE {
            self.table.pop_back();
        }
    }

    /// What the entries cost together, as HPACK counts (RFC 7541, section 4.1).
    fn size(&self) -> usize {
        self.table.iter().map(|(name, value)| name.len() + value.len() + 32).sum()
    }

    fn plain(&mut self, block: &mut Vec<u8>, name: &[u8], value: &[u8]) {
        self.header(block, name, value, &raw(value));
    }
}

fn raw(text: &[u8]) -> Vec<u8> {
    [&integer(0, 7, text.len())[..], text].concat()
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

#[derive(Debug, PartialEq)]
enum Answer {
    Message(ProbeResponse),
    Reset { code: u32 },
}

const PROTOCOL_ERROR: Answer = Answer::Reset { code: 1 };
const READY: Answer = Answer::Message(ProbeResponse { ready: Some(true) });

struct RawClient {
    stream: UnixStream,
    encoder: Encoder,
    next_stream: u32,
}

impl RawClient {
    async fn connect(path: &Path) -> Self {
        let mut stream = UnixStream::connect(path).await.unwrap();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        stream.write_all(&frame(4, 0, 0, &[])).await.unwrap();
        Self { stream, encoder: Encoder::default(), next_stream: 1 }
    }

    /// Calls Probe with this authority, whose HPACK string is `wire_authority`.
    async fn probe(&mut self, authority: &[u8], wire_authority: &[u8], nonce: &str) -> Answer {
        let mut block = vec![0x83, 0x86];
        self.encoder.plain(&mut block, b":path", b"/csi.v1.Identity/Probe");
        self.encoder.header(&mut block, b":authority", authority, wire_authority);
        self.encoder.plain(&mut block, b"content-type", b"application/grpc");
        self.encoder.plain(&mut block, b"te", b"trailers");
        self.encoder.plain(&mut block, b"x-nonce", nonce.as_bytes());
        let id = self.next_stream;
        self.next_stream += 2;
        self.stream.write_all(&frame(1, 0x4, id, &block)).await.unwrap();
        // An empty message: not compressed, no bytes. The flag is END_STREAM.
        self.stream.write_all(&frame(0, 0x1, id, &[0; 5])).await.unwrap();
        self.answer(id).await
    }

    /// Reads frames until the stream ends.
    async fn answer(&mut self, id: u32) -> Answer {
        let mut message = Vec::new();
        loop {
            let mut header = [0; 9];
            self.stream.read_exact(&mut header).await.unwrap();
            let [high, middle, low, kind, flags, stream @ ..] = header;
            let mut payload = vec![0; u32::from_be_bytes([0, high, middle, low]) as usize];
            self.stream.read_exact(&mut payload).await.unwrap();
            match (kind, u32::from_be_bytes(stream)) {
                (4, 0) if flags & 1 == 0 => self.stream.write_all(&frame(4, 1, 0, &[])).await.unwrap(),
                (7, 0) => panic!("the server ended the connection: {payload:?}"),
                (3, stream) if stream == id => {
                    let code = u32::from_be_bytes(payload.try_into().unwrap());
                    return Answer::Reset { code };
                }
                (0, stream) if stream == id => message.extend(payload),
                (1, stream) if stream == id && flags & 1 != 0 => {
                    return Answer::Message(ProbeResponse::decode(&message[5..]).unwrap());
                }
                _ => {}
            }
        }
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, high, middle, low] = (payload.len() as u32).to_be_bytes();
    [&[high, middle, low, kind, flags][..], &stream.to_be_bytes(), payload].concat()
}

/// Rule: LOCAL-0.9
#[tokio::test]
async fn a_plain_server_resets_such_a_request() {
    let served = serve_without_tolerance();
    let mut client = RawClient::connect(&served.path).await;
    assert_eq!(client.probe(PATH, &raw(PATH), "a").await, PROTOCOL_ERROR);
    let mut client = RawClient::connect(&served.path).await;
    assert_eq!(client.probe(b"localhost", &raw(b"localhost"), "b").await, READY);
    assert_eq!(*served.plugin.nonces.lock().unwrap(), ["b"]);
}

/// Rule: LOCAL-0.9
#[tokio::test]
async fn every_spelling_of_a_path_is_answered() {
    let served = serve();
    let huffman = [&[0x80 | PATH_HUFFMAN.len() as u8], PATH_HUFFMAN].concat();
    let encoded = b"%2Fcsi%2Fcsi.sock";
    for (authority, wire) in
        [(PATH, raw(PATH)), (PATH, huffman), (encoded, raw(encoded)), (b"localhost", raw(b"localhost"))]
    {
        let mut client = RawClient::connect(&served.path).await;
        let name = String::from_utf8_lossy(authority);
        assert_eq!(client.probe(authority, &wire, "first").await, READY, "{name}");
        assert_eq!(client.probe(authority, &wire, "second, all by index").await, READY, "{name}");
    }
    assert_eq!(served.plugin.nonces.lock().unwrap().len(), 8);
    for peer in served.plugin.peers.lock().unwrap().iter() {
        let Some(Peer::Unix(peer)) = peer else { panic!("{peer:?}") };
        assert_eq!(peer.pid, Some(std::process::id() as i32));
    }
}

#[tokio::test]
async fn the_dynamic_tables_stay_in_step_while_entries_are_evicted() {
    let served = serve();
    let mut client = RawClient::connect(&served.path).await;
    // Each nonce is a new entry, so the table turns over many times, and `:authority` is evicted and sent again.
    let nonces: Vec<String> = (0..300).map(|nth| format!("{nth:03}-{}", "n".repeat(nth % 60))).collect();
    let huffman = [&[0x80 | PATH_HUFFMAN.len() as u8], PATH_HUFFMAN].concat();
    for nonce in &nonces {
        assert_eq!(client.probe(PATH, &huffman, nonce).await, READY, "{nonce}");
    }
    assert_eq!(*served.plugin.nonces.lock().unwrap(), nonces);
}

#[tokio::test]
async fn a_table_filled_to_its_last_byte_keeps_its_oldest_entry() {
    let huffman = [&[0x80 | PATH_HUFFMAN.len() as u8], PATH_HUFFMAN].concat();
    let percent = b"%2Fcsi%2Fcsi.sock";
    for (authority, wire) in [(PATH, raw(PATH)), (PATH, huffman), (percent, raw(percent))] {
        let served = serve();
        let mut client = RawClient::connect(&served.path).await;
        assert_eq!(client.probe(authority, &wire, "first").await, READY);
        // The second nonce fills the table exactly. Were the server's copy of `:authority` one byte longer than the
        // client's, the server would now evict `:path`, and the third request, which sends only its index, would fail.
        let room = Encoder::TABLE_SIZE - client.encoder.size() - b"x-nonce".len() - 32;
        let filler = "n".repeat(room);
        assert_eq!(client.probe(authority, &wire, &filler).await, READY);
        assert_eq!(client.encoder.size(), Encoder::TABLE_SIZE);
        assert_eq!(client.encoder.table.back().map(|(name, _)| &name[..]), Some(&b":path"[..]));
        assert_eq!(client.probe(authority, &wire, &filler).await, READY);
        assert_eq!(*served.plugin.nonces.lock().unwrap(), ["first", &filler, &filler]);
    }
}
