//! What one client may cost: sizes, times and numbers are bounded before anybody is asked who they are.

use std::time::Duration;

use apiserver::server::Limits;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::door::{Door, read_reply};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn what_is_too_large_is_refused_with_its_own_code() {
    let door = Door::open().await;
    let admin = Some(door.pki.admin());
    let long = |length: usize| "x".repeat(length);
    let header = format!("x-large: {}", long(70_000));
    assert_eq!(door.knock(admin, "GET /readyz", &[&header], "").await.code, 431);
    let many: Vec<String> = (0..140).map(|number| format!("x-{number}: y")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(door.knock(admin, "GET /readyz", &many, "").await.code, 431);
    assert_eq!(door.knock(admin, &format!("GET /api/{}", long(9_000)), &[], "").await.code, 414);
    assert_eq!(door.knock(admin, &format!("GET {MAPS}?labelSelector={}", long(50_000)), &[], "").await.code, 414);
    let body = format!("{{\"metadata\":{{\"name\":\"large\"}},\"data\":{{\"a\":\"{}\"}}}}", long(3 * 1024 * 1024));
    let reply = door.knock(admin, &format!("POST {MAPS}"), &[], &body).await;
    assert_eq!((reply.code, reply.body["reason"].as_str()), (413, Some("RequestEntityTooLarge")));
    assert_eq!(door.knock(admin, "GET /readyz", &[], "").await.code, 200, "the server is well");
    door.close().await;
}

#[tokio::test]
async fn the_body_of_a_stranger_is_not_waited_for() {
    let door = Door::open().await;
    let mut stream = door.connect(None).await.expect("the handshake succeeds");
    let head = format!("POST {MAPS} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 3000000\r\n\r\n");
    stream.write_all(head.as_bytes()).await.expect("the connection is open");
    assert_eq!(read_reply(&mut stream).await.code, 403);
    door.close().await;
}

#[tokio::test(start_paused = true)]
async fn who_is_slow_is_cut_off() {
    let door = Door::open().await;
    let start = Instant::now();
    // Nothing at all, not even a handshake.
    let mut silent = TcpStream::connect(door.address).await.expect("the port is open");
    let mut bytes = Vec::new();
    let _ = silent.read_to_end(&mut bytes).await;
    assert!(bytes.is_empty() && start.elapsed() <= Duration::from_secs(11), "{:?}", start.elapsed());

    // Half of the headers, as the attack called slowloris does.
    let start = Instant::now();
    let mut half = door.connect(None).await.expect("the handshake succeeds");
    half.write_all(b"GET /readyz HTTP/1.1\r\nhost: x\r\n").await.expect("the connection is open");
    assert_ne!(read_reply(&mut half).await.code, 200);
    assert!(start.elapsed() <= Duration::from_secs(31), "{:?}", start.elapsed());

    // All of the headers and one byte of the body.
    let start = Instant::now();
    let mut body = door.connect(Some(door.pki.admin())).await.expect("the handshake succeeds");
    let head = format!("POST {MAPS} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 100\r\n\r\n{{");
    body.write_all(head.as_bytes()).await.expect("the connection is open");
    let reply = read_reply(&mut body).await;
    assert_eq!((reply.code, reply.body["reason"].as_str()), (504, Some("Timeout")), "{reply:?}");
    assert!(start.elapsed() <= Duration::from_secs(61), "{:?}", start.elapsed());
    door.close().await;
}

#[tokio::test]
async fn connections_that_say_nothing_keep_nobody_out() {
    let door = Door::with(Limits { connections: 16, ..Limits::default() }).await;
    let mut known = door.connect(Some(door.pki.admin())).await.expect("there is a seat");
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(TcpStream::connect(door.address).await.expect("the port is open"));
        silent.push(door.connect(None).await.expect("a stranger before made room").into_inner().0);
    }
    assert_eq!(door.knock(None, "GET /readyz", &[], "").await.code, 200, "strangers are answered");
    known.write_all(b"GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.expect("it is open");
    assert_eq!(read_reply(&mut known).await.code, 200, "who has shown a certificate keeps its seat");
    drop(silent);
    door.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_request_is_cut_off() {
    let door = Door::open().await;
    for protocol in [&b"http/1.1"[..], b"h2"] {
        let start = Instant::now();
        let mut quiet = door.speak(Some(door.pki.admin()), &[protocol]).await.expect("the handshake succeeds");
        let mut bytes = Vec::new();
        let _ = timeout(Duration::from_secs(60), quiet.read_to_end(&mut bytes)).await;
        assert!(start.elapsed() <= Duration::from_secs(11), "{:?}", start.elapsed());
    }
    door.close().await;
}

#[tokio::test]
async fn a_client_that_is_refused_while_it_sends_reads_the_answer() {
    let door = Door::open().await;
    // More than fits into the buffers between the two, so that the answer comes while the body is sent.
    let body = format!("{{\"metadata\":{{\"name\":\"a\"}},\"data\":{{\"a\":\"{}\"}}}}", "x".repeat(2 << 20));
    for _ in 0..5 {
        assert_eq!(door.knock(None, &format!("POST {MAPS}"), &[], &body).await.code, 403);
    }
    door.close().await;
}

#[tokio::test]
async fn tls_before_1_2_is_refused_by_an_alert() {
    let door = Door::open().await;
    let mut hello = vec![0x16, 3, 1, 0, 47, 1, 0, 0, 43, 3, 2];
    hello.extend([7; 32]);
    // No session, one cipher suite of that time, no compression.
    hello.extend([0, 0, 2, 0xc0, 0x13, 1, 0, 0, 0]);
    let length = u8::try_from(hello.len() - 5).expect("it is short");
    (hello[4], hello[8]) = (length, length - 4);
    let mut stream = TcpStream::connect(door.address).await.expect("the port is open");
    stream.write_all(&hello).await.expect("the connection is open");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert_eq!(answer.first(), Some(&0x15), "an alert and nothing else: {answer:?}");
    assert_eq!(answer.len(), 7);
    door.close().await;
}

#[tokio::test]
async fn both_versions_of_http_are_spoken() {
    let door = Door::open().await;
    let old = door.speak(None, &[b"http/1.1"]).await.expect("the handshake succeeds");
    assert_eq!(old.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let mut new = door.speak(None, &[b"h2", b"http/1.1"]).await.expect("the handshake succeeds");
    assert_eq!(new.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    // The preface, empty settings, and GET /readyz by the static table, without compression.
    let mut block = vec![0x82, 0x87, 0x04, 7];
    block.extend(b"/readyz");
    block.extend([0x01, 9]);
    block.extend(b"localhost");
    new.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.expect("the connection is open");
    let length = u8::try_from(block.len()).expect("it is short");
    new.write_all(&[0, 0, length, 1, 5, 0, 0, 0, 1]).await.expect("the connection is open");
    new.write_all(&block).await.expect("the connection is open");
    loop {
        let mut head = [0; 9];
        new.read_exact(&mut head).await.expect("a frame comes");
        let mut frame = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
        new.read_exact(&mut frame).await.expect("the frame is whole");
        if head[3] == 1 {
            assert_eq!(frame.first(), Some(&0x88), "the status is 200");
            break;
        }
    }
    drop((old, new));
    door.close().await;
}
