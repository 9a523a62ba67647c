//! Everything a user may type wrong is answered helpfully: no error without a cause and a way out, and no flag that is
//! ignored in silence.
//!
//! The rows are in `wrong/lines.rs` (command lines), `wrong/files.rs` (files, directories, sockets, ports) and
//! `wrong/objects.rs` (objects); the answers in `tests/golden/wrong`. `UPDATE_GOLDEN=1` writes those anew. Beside what the
//! golden files say, every answer is held to rules that no row is exempt from, see [`table::Answer::check`].

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "these are tests")]

mod api_rig;
#[path = "wrong/files.rs"]
mod files;
#[path = "wrong/lines.rs"]
mod lines;
#[path = "wrong/objects.rs"]
mod objects;
#[path = "wrong/room.rs"]
mod room;
mod stack_rig;
#[path = "wrong/table.rs"]
mod table;

use std::path::Path;

use room::Room;
use table::Table;

#[test]
fn wrong_command_lines_are_answered_with_what_to_type_instead() {
    let room = Room::new();
    let mut table = Table::open("lines");
    for line in lines::ROWS {
        table.row(line, &room.run(line));
    }
    table.close();
}

#[tokio::test]
async fn wrong_files_directories_and_addresses_are_named_and_left_alone() {
    let mut table = Table::open("files");
    files::play(&mut table).await;
    table.close();
}

#[tokio::test]
async fn wrong_objects_are_refused_or_explained() {
    let mut table = Table::open("objects");
    objects::play(&mut table).await;
    table.close();
}

#[test]
fn there_are_at_least_sixty_of_them() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/wrong");
    let files = folder.read_dir().expect("the golden files are there").flatten();
    let texts = files.map(|file| std::fs::read_to_string(file.path()).expect("a golden file can be read"));
    let rows: usize = texts.map(|text| text.lines().filter(|line| line.starts_with("$ ")).count()).sum();
    assert!(rows >= 60, "there are {rows}");
}
