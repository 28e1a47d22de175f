//! `tamma mcp` with a server that answers slowly.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

/// Answers one request: a tool call after a message in `release`, everything else at once.
fn serve(mut stream: &TcpStream, release: &Mutex<Receiver<()>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or_default() == 0 {
                return;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let message: Value = serde_json::from_slice(&body).unwrap();
        if message["method"] == "tools/call" {
            release.lock().unwrap().recv().unwrap();
        }
        let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": {} }).to_string();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length:";
        write!(stream, "{head} {}\r\n\r\n{answer}", answer.len()).unwrap();
    }
}

/// Starts a server and returns its URL, and a sender that releases a slow call.
fn slow_server() -> (String, Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, release) = channel();
    let release = Arc::new(Mutex::new(release));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let release = release.clone();
            thread::spawn(move || serve(&stream.unwrap(), &release));
        }
    });
    (url, sender)
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test starts the program itself")]
fn a_ping_is_answered_while_a_slow_call_runs() {
    let (url, release) = slow_server();
    let folder = tempfile::TempDir::new().unwrap();
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin!("tamma"))
        .args(["mcp", "--server", &url, "--as", "Ada"])
        .env_clear()
        .env("TAMMA_DATA", folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&answers.next().unwrap().unwrap()).unwrap() };
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {} });
    let ping = json!({ "jsonrpc": "2.0", "id": 2, "method": "ping" });
    write!(input, "{call}\n{ping}\n").unwrap();
    assert_eq!(next()["id"], 2, "the ping does not wait for the call");
    release.send(()).unwrap();
    assert_eq!(next()["id"], 1);
    // What is under way at the end of the input is answered before the program ends.
    writeln!(input, "{call}").unwrap();
    drop(input);
    release.send(()).unwrap();
    assert_eq!(next()["id"], 1);
    assert!(child.wait().unwrap().success());
}
