//! docs/commands.md is what the program prints of itself; `UPDATE_GOLDEN=1` writes it anew.

use std::path::Path;
use std::process::Command;

#[test]
fn the_page_of_all_commands_and_flags_is_up_to_date() {
    let output = Command::new(env!("CARGO_BIN_EXE_orlop"))
        .args(["man", "--markdown"])
        .output()
        .expect("the binary was just built");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let now = String::from_utf8(output.stdout).expect("it is text");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands.md");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&page, &now).expect("the page can be written");
        return;
    }
    let kept = std::fs::read_to_string(&page).unwrap_or_default();
    let differs = now.lines().zip(kept.lines()).find(|(now, kept)| now != kept);
    assert!(
        now == kept,
        "docs/commands.md is not what the program says (first difference, now and there: {differs:?}).\n\
         To write it anew: UPDATE_GOLDEN=1 cargo test -p orlop --test commands_doc"
    );
}
